-- Inserts one lineage row, if this is still the server process that was polled and it can write,
-- and if it is the last one then: a parent that could not be read may have become readable since.
-- GUARDED is `true`, or `false` in tests that show what happens without the condition.
insert into tidegate.lineage (
    system_id, timeline, start_us, reset_us, parent_timeline, parent_start_us, parent_reset_us,
    at_least, at_most, n, instance
)
select $1::text::numeric, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11
from pg_catalog.pg_control_system() c
where not exists (
    select from tidegate.lineage l where l.system_id = $1::text::numeric and l.n >= $10
) and (not GUARDED or (
    not pg_catalog.pg_is_in_recovery()
    and c.system_identifier = $1::text::numeric
    and (extract(epoch from pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint = $12
    and (extract(epoch from pg_catalog.pg_stat_get_bgwriter_stat_reset_time())
        * 1000000)::bigint = $13
))
on conflict do nothing
