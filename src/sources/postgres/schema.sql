-- The objects Tidegate needs in a PostgreSQL database, versions 15 and later.
--
-- Run it once on the leader, as a superuser or as a role with CREATEROLE that may create schemas
-- in this database; replicas receive it like data. Running it again is harmless: it changes
-- nothing that is already so and takes no lock that readers or standby sessions would notice.
--
-- In the *home* database of a partition the whole file is run. In other databases of the same
-- server, from which applications also want evidence, the part marked "home database only" is left
-- out: the functions then answer with an empty row.
--
-- It creates two roles, one schema, one table that grows by one row per failover or restart of the
-- leader, and five functions that read positions. Nothing here sees rows of yours.

begin;
-- What exists already is not worth a notice.
set local client_min_messages = warning;

-- ROLES. The owner owns the objects and never logs in; `tidegate` is who the service connects as.
-- Both read the timeline of a standby's WAL receiver, which takes pg_read_all_stats. Give
-- `tidegate` a password afterwards: ALTER ROLE tidegate PASSWORD '...'.
do $roles$
declare
    may_act_as constant text :=
        case when pg_catalog.current_setting('server_version_num')::int >= 160000
             then 'SET' else 'MEMBER' end;
    account text;
begin
    -- Two runs at the same time would otherwise disturb each other.
    perform pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('tidegate schema', 0));

    if not exists (select from pg_catalog.pg_roles where rolname = 'tidegate_owner') then
        create role tidegate_owner nologin;
    end if;
    if not exists (select from pg_catalog.pg_roles where rolname = 'tidegate') then
        create role tidegate login connection limit 24;
    end if;
    foreach account in array array['tidegate_owner', 'tidegate'] loop
        if not pg_catalog.pg_has_role(account, 'pg_read_all_stats', 'USAGE') then
            execute pg_catalog.format('grant pg_read_all_stats to %I', account);
        end if;
    end loop;
    if not pg_catalog.pg_has_role('tidegate_owner', may_act_as) then
        execute pg_catalog.format('grant tidegate_owner to %I', current_user);
    end if;
exception when insufficient_privilege then
    raise insufficient_privilege using
        message = pg_catalog.format('%I may not set up the roles of Tidegate: %s',
                                    current_user, sqlerrm),
        hint = pg_catalog.format(
            'Have an administrator run, then try again: CREATE ROLE tidegate_owner NOLOGIN; '
            'CREATE ROLE tidegate LOGIN CONNECTION LIMIT 24; '
            'GRANT pg_read_all_stats TO tidegate_owner, tidegate; GRANT tidegate_owner TO %I;',
            current_user);
end
$roles$;

create schema if not exists tidegate authorization tidegate_owner;

-- From here on as the owner, so that nothing has to change hands: ALTER TABLE would lock everyone
-- out of the table, on standbys too.
set local role tidegate_owner;

grant usage on schema tidegate to public;

-- >>> home database only
-- LINEAGE. One row per epoch, which is one life of one leader on one timeline. The rows replicate
-- like data, so those that a server shows prove which line of leaders its content comes from.
create table if not exists tidegate.lineage (
    -- The epoch: of which database cluster, which timeline, and which life of the leader
    -- (microseconds since 1970). Rows of other clusters (dumps, templates, upgrades) are ignored.
    system_id       numeric(20) not null,
    timeline        bigint      not null,
    start_us        bigint      not null,
    reset_us        bigint      not null,
    -- The epoch it grew from; null at a root.
    parent_timeline bigint,
    parent_start_us bigint,
    parent_reset_us bigint,
    -- The parent's content up to at_least is in this epoch, past at_most it is not.
    -- Both null: all of it is. '0/0' with null: unknown.
    at_least        pg_lsn,
    at_most         pg_lsn,
    -- The parent's n + 1; the row with the highest n is the last.
    n               bigint      not null,
    -- For people: which instance of Tidegate wrote the row, and when.
    instance        text        not null,
    accepted_at     timestamptz not null default pg_catalog.now(),
    primary key (system_id, timeline, start_us, reset_us),
    unique (system_id, n)
);

grant select, insert on tidegate.lineage to tidegate;
-- <<< home database only

-- EVIDENCE. Each function returns one string; pass it to Tidegate as it is:
--   capture()  on the leader, in the statement after COMMIT, on the same connection
--   before()   inside a writing transaction, in one packet with COMMIT; optional
--   sample()   after a read, on the same connection
-- The string holds numbers only, so no setting of a session changes it. The functions run as
-- their owner, so that every role gets an answer and none needs a right to the table.
do $evidence$
declare
    -- Recovery is asked about once, first: a promotion between two fields would otherwise give a
    -- leader without a timeline. What a standby replayed is read before the timeline its receiver
    -- names, so that the position is never newer than the timeline it is attributed to.
    template constant text := $template$
create or replace function tidegate.KIND() returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $body$
declare
    in_recovery constant boolean := pg_catalog.pg_is_in_recovery();
    own_system constant numeric(20) :=
        (select c.system_identifier from pg_catalog.pg_control_system() c);
    evidence text;
begin
    select pg_catalog.format(
        'tge1|KIND|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s',
        (select pg_catalog.current_setting('server_version_num')),
        own_system,
        (select case when not in_recovery then
            ('x' || pg_catalog.left(
                pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8)
            )::bit(32)::bigint end),
        (select (extract(epoch from pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint),
        (select (extract(epoch from pg_catalog.pg_stat_get_bgwriter_stat_reset_time())
            * 1000000)::bigint),
        in_recovery::int,
        (select case when not in_recovery then pg_catalog.pg_current_wal_insert_lsn() end),
        (select case when not in_recovery then pg_catalog.pg_current_wal_flush_lsn() end),
        (select pg_catalog.pg_last_wal_replay_lsn()),
        (select case when in_recovery then
            (select r.received_tli from pg_catalog.pg_stat_wal_receiver r) end),
        LAST_ROW,
        (select pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))),
        (select pg_catalog.current_setting('synchronous_commit'))
    ) into evidence;
    return evidence;
end
$body$
$template$;
    last_row constant text :=
        case when pg_catalog.to_regclass('tidegate.lineage') is null then 'null::text'
        else $row$(select pg_catalog.format('%s.%s.%s', l.timeline, l.start_us, l.reset_us)
            from tidegate.lineage l where l.system_id = own_system
            order by l.n desc limit 1)$row$ end;
    kind text;
begin
    foreach kind in array array['capture', 'before', 'sample'] loop
        execute pg_catalog.replace(
            pg_catalog.replace(template, 'KIND', kind), 'LAST_ROW', last_row);
    end loop;
end
$evidence$;

-- INCARNATION. Which life of which server answers; two answers are equal or they are not, and
-- nothing else can be read from the text.
create or replace function tidegate.incarnation() returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $body$
begin
    return pg_catalog.format('%s.%s.%s',
        (select c.system_identifier from pg_catalog.pg_control_system() c),
        (extract(epoch from pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint,
        (extract(epoch from pg_catalog.pg_stat_get_bgwriter_stat_reset_time())
            * 1000000)::bigint);
end
$body$;

-- VERSION. Of these objects; the service says when it is behind.
create or replace function tidegate.version() returns integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $body$
begin
    return 1;
end
$body$;

grant execute on function
    tidegate.capture(), tidegate.before(), tidegate.sample(),
    tidegate.incarnation(), tidegate.version()
to public;

-- OPTIONAL, not done here: let `tidegate` read the history file of a promoted server, so that less
-- is in doubt after a promotion nobody saw, or several at once. As a superuser:
--     GRANT EXECUTE ON FUNCTION pg_catalog.pg_read_file(text) TO tidegate;
-- That function reads every file in the data directory, tables included: grant it only if the
-- password of `tidegate` is kept as well as that of a superuser. Without it nothing is wrong.

commit;
