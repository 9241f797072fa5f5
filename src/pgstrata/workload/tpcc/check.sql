-- The consistency conditions of clause 3.3.2, each with the number of rows that break it. The eleventh holds of new
-- data alone; later it is that orders without a carrier are those of new_order, as deliveries take place.
WITH district_orders AS MATERIALIZED (
    SELECT o_w_id AS w, o_d_id AS d, max(o_id) AS last, count(*) AS orders, sum(o_ol_cnt) AS lines,
           count(o_carrier_id) AS carried
    FROM orders GROUP BY 1, 2
), district_new AS MATERIALIZED (
    SELECT no_w_id AS w, no_d_id AS d, max(no_o_id) AS last, min(no_o_id) AS first, count(*) AS new
    FROM new_order GROUP BY 1, 2
), order_lines AS MATERIALIZED (
    SELECT ol_w_id AS w, ol_d_id AS d, ol_o_id AS o, count(*) AS lines, count(ol_delivery_d) AS delivered,
           sum(ol_amount) AS amount
    FROM order_line GROUP BY 1, 2, 3
), paid AS MATERIALIZED (
    SELECT h_c_w_id AS w, h_c_d_id AS d, h_c_id AS c, sum(h_amount) AS amount FROM history GROUP BY 1, 2, 3
), bought AS MATERIALIZED (
    SELECT o_w_id AS w, o_d_id AS d, o_c_id AS c, sum(amount) AS amount
    FROM orders JOIN order_lines ON w = o_w_id AND d = o_d_id AND o = o_id
    WHERE delivered > 0 GROUP BY 1, 2, 3
)
SELECT 1 AS condition, count(*) AS broken FROM warehouse
WHERE w_ytd IS DISTINCT FROM (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id)
UNION ALL SELECT 2, count(*) FROM district LEFT JOIN district_orders o ON o.w = d_w_id AND o.d = d_id
LEFT JOIN district_new n ON n.w = d_w_id AND n.d = d_id
WHERE d_next_o_id - 1 IS DISTINCT FROM o.last OR o.last <> n.last
UNION ALL SELECT 3, count(*) FROM district_new WHERE last - first + 1 <> new
UNION ALL SELECT 4, count(*) FROM district_orders o
WHERE lines IS DISTINCT FROM (SELECT sum(l.lines) FROM order_lines l WHERE l.w = o.w AND l.d = o.d)
UNION ALL SELECT 5, count(*) FROM orders FULL JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
WHERE o_id IS NULL OR (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)
UNION ALL SELECT 6, count(*) FROM orders FULL JOIN order_lines l ON l.w = o_w_id AND l.d = o_d_id AND l.o = o_id
WHERE o_ol_cnt IS DISTINCT FROM l.lines
UNION ALL SELECT 7, count(*) FROM orders JOIN order_lines l ON l.w = o_w_id AND l.d = o_d_id AND l.o = o_id
WHERE l.delivered <> CASE WHEN o_carrier_id IS NULL THEN 0 ELSE l.lines END
UNION ALL SELECT 8, count(*) FROM warehouse
WHERE w_ytd IS DISTINCT FROM (SELECT sum(h_amount) FROM history WHERE h_w_id = w_id)
UNION ALL SELECT 9, count(*) FROM district
LEFT JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS amount FROM history GROUP BY 1, 2) h
ON h_w_id = d_w_id AND h_d_id = d_id
WHERE d_ytd IS DISTINCT FROM h.amount
UNION ALL SELECT 10, count(*) FROM customer LEFT JOIN bought b ON b.w = c_w_id AND b.d = c_d_id AND b.c = c_id
LEFT JOIN paid p ON p.w = c_w_id AND p.d = c_d_id AND p.c = c_id
WHERE c_balance IS DISTINCT FROM coalesce(b.amount, 0) - coalesce(p.amount, 0)
UNION ALL SELECT 11, count(*) FROM district_orders o LEFT JOIN district_new n ON n.w = o.w AND n.d = o.d
WHERE o.orders - coalesce(n.new, 0) <> o.carried OR o.carried < 2100 OR (:fresh AND o.carried <> 2100)
UNION ALL SELECT 12, count(*) FROM customer LEFT JOIN bought b ON b.w = c_w_id AND b.d = c_d_id AND b.c = c_id
WHERE c_balance + c_ytd_payment IS DISTINCT FROM coalesce(b.amount, 0)
ORDER BY 1;
