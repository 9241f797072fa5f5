-- Clause 2.7. The oldest orders of the ten districts are one statement; deliveries of a warehouse wait for one another.
\set w random(1, :scale)
\set carrier random(1, 10)
BEGIN;
SELECT pg_advisory_xact_lock(:w);
WITH due AS MATERIALIZED (
    SELECT d, oldest.no_o_id AS o FROM generate_series(1, 10) d,
    LATERAL (SELECT no_o_id FROM new_order WHERE no_w_id = :w::int AND no_d_id = d ORDER BY no_o_id LIMIT 1) oldest
), gone AS (
    DELETE FROM new_order USING due WHERE no_w_id = :w::int AND no_d_id = d AND no_o_id = o
), carried AS (
    UPDATE orders SET o_carrier_id = :carrier::int FROM due WHERE o_w_id = :w::int AND o_d_id = d AND o_id = o
    RETURNING o_d_id, o_id, o_c_id
), lines AS (
    UPDATE order_line SET ol_delivery_d = now() FROM due WHERE ol_w_id = :w::int AND ol_d_id = d AND ol_o_id = o
    RETURNING ol_d_id, ol_amount
)
UPDATE customer SET c_balance = c_balance + total.amount, c_delivery_cnt = c_delivery_cnt + 1
FROM carried JOIN (SELECT ol_d_id, sum(ol_amount) AS amount FROM lines GROUP BY 1) total ON ol_d_id = o_d_id
WHERE c_w_id = :w::int AND c_d_id = o_d_id AND c_id = o_c_id;
COMMIT;
