#!/bin/sh
# What an operator does once: the roles, the schema `tidegate`, and a configuration that names the
# database cluster. Run again, it changes nothing but passwords that were changed.
#
# libpq's variables (PGHOST, PGPORT, PGUSER, PGDATABASE) say which leader. Reads the passwords from
# files, so that no list of processes shows one. Connects to nothing else and starts nothing.
set -eu

secrets=${SECRETS:-/run/secrets}
schema=${SCHEMA:-/setup/schema.sql}
template=${TEMPLATE:-/setup/tidegate.toml}
config=${CONFIG:-/config/tidegate.toml}

PGPASSWORD=$(cat "$secrets/postgres_password")
export PGPASSWORD

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --file "$schema"

# Passwords come by standard input and stay out of the log of the server.
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 <<SQL
set log_statement = 'none';
set log_min_duration_statement = -1;
set log_min_error_statement = 'panic';
select 'create role replicator replication login'
    where not exists (select from pg_roles where rolname = 'replicator') \gexec
\set replication \`cat "$secrets/replication_password"\`
\set polling \`cat "$secrets/tidegate_password"\`
alter role replicator password :'replication';
alter role tidegate password :'polling';
SQL

system_id=$(psql --no-psqlrc --quiet --no-align --tuples-only --set ON_ERROR_STOP=1 \
    --command 'select system_identifier from pg_control_system()')
# Whole or not at all: Tidegate may start at any moment.
sed "s/^system_id = .*/system_id = $system_id/" "$template" >"$config.new"
chmod 0644 "$config.new"
mv "$config.new" "$config"
echo "the database cluster $system_id is ready for Tidegate"
