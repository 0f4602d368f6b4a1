-- The poll: the evidence string of kind `poll`, field for field what the functions of schema.sql
-- return, and whether the role may see WAL receivers. A raw query, because it must also work where
-- those functions are not installed. LAST_ROW and ROWS are filled in by statements.rs.
--
-- Whether the server recovers is read once, in the subquery, which `offset 0` keeps apart: all
-- later fields agree with it, even while a promotion ends. Fields are computed in their order, so
-- the replay position is never newer than the timeline named after it.
select pg_catalog.format(
        'tge1|poll|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s',
        (select pg_catalog.current_setting('server_version_num')),
        s.own_system,
        (select case when not s.in_recovery then
            ('x' || pg_catalog.left(
                pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8)
            )::bit(32)::bigint end),
        (select (extract(epoch from pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint),
        (select (extract(epoch from pg_catalog.pg_stat_get_bgwriter_stat_reset_time())
            * 1000000)::bigint),
        s.in_recovery::int,
        (select case when not s.in_recovery then pg_catalog.pg_current_wal_insert_lsn() end),
        (select case when not s.in_recovery then pg_catalog.pg_current_wal_flush_lsn() end),
        (select pg_catalog.pg_last_wal_replay_lsn()),
        (select case when s.in_recovery then
            (select r.received_tli from pg_catalog.pg_stat_wal_receiver r) end),
        LAST_ROW,
        (select pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))),
        (select pg_catalog.current_setting('synchronous_commit'))
    ),
    pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'),
    ROWS
from (
    select pg_catalog.pg_is_in_recovery() as in_recovery,
        (select c.system_identifier::numeric from pg_catalog.pg_control_system() c) as own_system
    offset 0
) s
