-- Clause 2.5.
\set w random(1, :scale)
\set d random(1, 10)
\set home random(1, 100)
\set other random(1, :scale)
\set cw CASE WHEN :home <= 85 THEN :w ELSE :other END
\set cd CASE WHEN :home <= 85 THEN :d ELSE random(1, 10) END
\set c (((random(0, 1023) | random(1, 3000)) + 259) % 3000) + 1
\set name ((random(0, 255) | random(0, 999)) + 223) % 1000
\set cents random(100, 500000)
\set byname random(1, 100)
BEGIN;
UPDATE warehouse SET w_ytd = w_ytd + :cents::numeric / 100 WHERE w_id = :w RETURNING w_name, w_street_1, w_city;
UPDATE district SET d_ytd = d_ytd + :cents::numeric / 100 WHERE d_w_id = :w AND d_id = :d RETURNING d_name, d_city;
\if :byname <= 60
SELECT (array_agg(c_id ORDER BY c_first))[(count(*) + 1) / 2] AS c FROM customer
WHERE c_w_id = :cw AND c_d_id = :cd AND c_last = tpcc_name(:name::int)
\gset
\endif
UPDATE customer
SET c_balance = c_balance - :cents::numeric / 100, c_ytd_payment = c_ytd_payment + :cents::numeric / 100,
    c_payment_cnt = c_payment_cnt + 1,
    c_data = CASE WHEN c_credit = 'BC'
                  THEN left(concat_ws(' ', c_id, c_d_id, c_w_id, :d::int, :w::int, :cents::int, c_data), 500)
                  ELSE c_data END
WHERE c_w_id = :cw AND c_d_id = :cd AND c_id = :c
RETURNING c_first, c_last, c_credit, c_balance;
INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
VALUES (:c, :cd, :cw, :d, :w, now(), :cents::numeric / 100, 'payment at the warehouse');
COMMIT;
