-- Clause 2.6.
\set w random(1, :scale)
\set d random(1, 10)
\set c (((random(0, 1023) | random(1, 3000)) + 259) % 3000) + 1
\set name ((random(0, 255) | random(0, 999)) + 223) % 1000
\set byname random(1, 100)
BEGIN;
\if :byname <= 60
SELECT (array_agg(c_id ORDER BY c_first))[(count(*) + 1) / 2] AS c FROM customer
WHERE c_w_id = :w AND c_d_id = :d AND c_last = tpcc_name(:name::int)
\gset
\endif
SELECT c_first, c_middle, c_last, c_balance FROM customer WHERE c_w_id = :w AND c_d_id = :d AND c_id = :c;
SELECT o_id AS o, o_carrier_id AS carrier FROM orders WHERE o_w_id = :w AND o_d_id = :d AND o_c_id = :c
ORDER BY o_id DESC LIMIT 1
\gset
SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
WHERE ol_w_id = :w AND ol_d_id = :d AND ol_o_id = :o;
COMMIT;
