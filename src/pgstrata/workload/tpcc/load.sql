-- Tables and data of TPC-C 5.11 (clauses 1.3 and 4.3.3) for :scale warehouses, made by the server from one seed.
SELECT setseed(0.5);

CREATE FUNCTION tpcc_syllable(digit int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT ('{BAR,OUGHT,ABLE,PRI,PRES,ESE,ANTI,CALLY,ATION,EING}'::text[])[digit % 10 + 1]
$$;
CREATE FUNCTION tpcc_name(number int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT tpcc_syllable(number / 100) || tpcc_syllable(number / 10) || tpcc_syllable(number)
$$;
CREATE FUNCTION tpcc_text(low int, high int) RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT left(md5(random()::text) || md5(random()::text), low + floor(random() * (high - low + 1))::int)
$$;
CREATE FUNCTION tpcc_data() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT overlay(tpcc_text(26, 50) PLACING CASE WHEN random() < 0.1 THEN 'ORIGINAL' ELSE '' END FROM 5)
$$;
CREATE FUNCTION tpcc_zip() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT to_char(floor(random() * 10000), 'FM0000') || '11111'
$$;

CREATE TABLE warehouse AS
SELECT w AS w_id, tpcc_text(6, 10) AS w_name, tpcc_text(10, 20) AS w_street_1, tpcc_text(10, 20) AS w_street_2,
       tpcc_text(10, 20) AS w_city, tpcc_text(2, 2) AS w_state, tpcc_zip() AS w_zip,
       round((random() * 0.2)::numeric, 4) AS w_tax, 300000.00::numeric(12, 2) AS w_ytd
FROM generate_series(1, :scale) w;

CREATE TABLE district AS
SELECT d AS d_id, w AS d_w_id, tpcc_text(6, 10) AS d_name, tpcc_text(10, 20) AS d_street_1,
       tpcc_text(10, 20) AS d_street_2, tpcc_text(10, 20) AS d_city, tpcc_text(2, 2) AS d_state,
       tpcc_zip() AS d_zip, round((random() * 0.2)::numeric, 4) AS d_tax, 30000.00::numeric(12, 2) AS d_ytd,
       3001 AS d_next_o_id
FROM generate_series(1, :scale) w, generate_series(1, 10) d;

-- The constants C of NURand (clause 2.1.6): 123 for names in the load, 223 in runs, which differ by 100.
CREATE TABLE customer AS
SELECT c AS c_id, d AS c_d_id, w AS c_w_id, tpcc_text(8, 16) AS c_first, 'OE'::text AS c_middle,
       tpcc_name(CASE WHEN c <= 1000 THEN c - 1 ELSE
           ((floor(random() * 256)::int | floor(random() * 1000)::int) + 123) % 1000 END) AS c_last,
       tpcc_text(10, 20) AS c_street_1, tpcc_text(10, 20) AS c_street_2, tpcc_text(10, 20) AS c_city,
       tpcc_text(2, 2) AS c_state, tpcc_zip() AS c_zip, tpcc_text(16, 16) AS c_phone,
       now()::timestamp AS c_since, CASE WHEN random() < 0.1 THEN 'BC' ELSE 'GC' END AS c_credit,
       50000.00::numeric(12, 2) AS c_credit_lim, round((random() * 0.5)::numeric, 4) AS c_discount,
       -10.00::numeric(12, 2) AS c_balance, 10.00::numeric(12, 2) AS c_ytd_payment, 1 AS c_payment_cnt,
       0 AS c_delivery_cnt,
       (SELECT left(string_agg(md5(random()::text), ''), 300 + c % 201) FROM generate_series(0, 15)) AS c_data
FROM generate_series(1, :scale) w, generate_series(1, 10) d, generate_series(1, 3000) c;

CREATE TABLE history AS
SELECT c_id AS h_c_id, c_d_id AS h_c_d_id, c_w_id AS h_c_w_id, c_d_id AS h_d_id, c_w_id AS h_w_id,
       now()::timestamp AS h_date, 10.00::numeric(6, 2) AS h_amount, tpcc_text(12, 24) AS h_data
FROM customer;

CREATE TABLE item AS
SELECT i AS i_id, 1 + floor(random() * 10000)::int AS i_im_id, tpcc_text(14, 24) AS i_name,
       round((1 + random() * 99)::numeric, 2) AS i_price, tpcc_data() AS i_data
FROM generate_series(1, 100000) i;

CREATE TABLE stock AS
SELECT i AS s_i_id, w AS s_w_id, 10 + floor(random() * 91)::int AS s_quantity,
       left(md5(i || 'a'), 24) AS s_dist_01, left(md5(i || 'b'), 24) AS s_dist_02, left(md5(i || 'c'), 24) AS s_dist_03,
       left(md5(i || 'd'), 24) AS s_dist_04, left(md5(i || 'e'), 24) AS s_dist_05, left(md5(i || 'f'), 24) AS s_dist_06,
       left(md5(i || 'g'), 24) AS s_dist_07, left(md5(i || 'h'), 24) AS s_dist_08, left(md5(i || 'i'), 24) AS s_dist_09,
       left(md5(i || 'j'), 24) AS s_dist_10, 0 AS s_ytd, 0 AS s_order_cnt, 0 AS s_remote_cnt, tpcc_data() AS s_data
FROM generate_series(1, :scale) w, generate_series(1, 100000) i;

CREATE TABLE orders AS
SELECT row_number() OVER (PARTITION BY c_w_id, c_d_id ORDER BY random())::int AS o_id, c_d_id AS o_d_id,
       c_w_id AS o_w_id, c_id AS o_c_id, now()::timestamp AS o_entry_d, NULL::int AS o_carrier_id,
       5 + floor(random() * 11)::int AS o_ol_cnt, 1 AS o_all_local
FROM customer;
UPDATE orders SET o_carrier_id = 1 + floor(random() * 10)::int WHERE o_id <= 2100;
CREATE TABLE new_order AS
SELECT o_id AS no_o_id, o_d_id AS no_d_id, o_w_id AS no_w_id FROM orders WHERE o_id > 2100;

CREATE TABLE order_line AS
SELECT o_id AS ol_o_id, o_d_id AS ol_d_id, o_w_id AS ol_w_id, n AS ol_number,
       1 + floor(random() * 100000)::int AS ol_i_id, o_w_id AS ol_supply_w_id,
       CASE WHEN o_id <= 2100 THEN o_entry_d END AS ol_delivery_d, 5 AS ol_quantity,
       CASE WHEN o_id <= 2100 THEN 0.00 ELSE round((0.01 + random() * 9999.98)::numeric, 2) END::numeric(8, 2)
           AS ol_amount,
       left(md5(random()::text), 24) AS ol_dist_info
FROM orders, generate_series(1, o_ol_cnt) n;

ALTER TABLE warehouse ADD PRIMARY KEY (w_id);
ALTER TABLE district ADD PRIMARY KEY (d_w_id, d_id);
ALTER TABLE customer ADD PRIMARY KEY (c_w_id, c_d_id, c_id);
ALTER TABLE item ADD PRIMARY KEY (i_id);
ALTER TABLE stock ADD PRIMARY KEY (s_w_id, s_i_id);
ALTER TABLE orders ADD PRIMARY KEY (o_w_id, o_d_id, o_id);
ALTER TABLE new_order ADD PRIMARY KEY (no_w_id, no_d_id, no_o_id);
ALTER TABLE order_line ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number);
CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first);
CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);
