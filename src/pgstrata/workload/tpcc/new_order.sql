-- Clause 2.4. The lines of an order are one statement; :dice decides them, so that a seed repeats a run.
\set w random(1, :scale)
\set d random(1, 10)
\set c (((random(0, 1023) | random(1, 3000)) + 259) % 3000) + 1
\set lines random(5, 15)
\set dice random(1, 1000000000)
\set unused CASE WHEN random(1, 100) = 1 THEN :lines ELSE 0 END
BEGIN;
SELECT w_tax FROM warehouse WHERE w_id = :w;
SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = :w AND c_d_id = :d AND c_id = :c;
UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = :w AND d_id = :d
RETURNING d_tax, d_next_o_id - 1 AS o
\gset
INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES (:o, :d, :w);
WITH dice AS MATERIALIZED (
    SELECT n, hashint8extended(:dice::bigint, n) AS a, hashint8extended(:dice::bigint, n + 100) AS b,
           hashint8extended(:dice::bigint, n + 200) AS r
    FROM generate_series(1, :lines::int) n
), line AS MATERIALIZED (
    SELECT n, CASE WHEN n = :unused::int THEN 0
                   ELSE (((a & 8191) | (abs(b % 100000) + 1)) + 7911) % 100000 + 1 END::int AS i,
           CASE WHEN abs(r % 100) = 0 THEN 1 + abs(r / 100 % :scale::int) ELSE :w::int END::int AS supply,
           (1 + abs(r / 7 % 10))::int AS quantity
    FROM dice
), priced AS MATERIALIZED (
    SELECT n, i, supply, quantity, i_price FROM line JOIN item ON i_id = i
), locked AS MATERIALIZED (
    SELECT s_w_id, s_i_id FROM stock WHERE (s_w_id, s_i_id) IN (SELECT supply, i FROM priced)
    ORDER BY s_w_id, s_i_id FOR UPDATE
), taken AS (
    UPDATE stock s
    SET s_quantity = s_quantity - p.quantity + CASE WHEN s_quantity - p.quantity >= 10 THEN 0 ELSE 91 END,
        s_ytd = s_ytd + p.quantity, s_order_cnt = s_order_cnt + p.times,
        s_remote_cnt = s_remote_cnt + CASE WHEN s.s_w_id = :w::int THEN 0 ELSE p.times END
    FROM locked, (SELECT supply, i, sum(quantity)::int AS quantity, count(*)::int AS times FROM priced GROUP BY 1, 2) p
    WHERE s.s_w_id = locked.s_w_id AND s.s_i_id = locked.s_i_id AND p.supply = s.s_w_id AND p.i = s.s_i_id
    RETURNING s.s_w_id, s.s_i_id, (ARRAY[s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, s_dist_07,
                                         s_dist_08, s_dist_09, s_dist_10])[:d::int] AS dist
), entered AS (
    INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
    SELECT :o::int, :d::int, :w::int, :c::int, now(), :lines::int, bool_and(supply = :w::int)::int FROM line
), placed AS (
    INSERT INTO order_line
        (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info)
    SELECT :o::int, :d::int, :w::int, n, i, supply, quantity, quantity * i_price, dist
    FROM priced JOIN taken ON s_w_id = supply AND s_i_id = i
    RETURNING 1
)
SELECT count(*) AS placed FROM placed
\gset
\if :placed = :lines
COMMIT;
\else
ROLLBACK;
\endif
