#!/bin/sh
# A standby: copied from the leader at its first start, and a server of its own from then on. Once
# promoted it stays a leader, whatever LEADER says. It watches nothing and promotes nobody.
#
# PGDATA is where the data goes, LEADER who is copied and followed, NAME how the leader's
# `pg_stat_replication` shows it. Further arguments go to postgres.
set -eu

secrets=${SECRETS:-/run/secrets}
passwords=${PASSWORDS:-/tmp/replication.pgpass}
leader="host=$LEADER port=${LEADER_PORT:-5432} user=replicator application_name=$NAME"
leader="$leader passfile=$passwords"

# libpq ignores a file of passwords that others may read.
umask 077
echo "*:*:*:replicator:$(cat "$secrets/replication_password")" >"$passwords"

if [ ! -e "$PGDATA" ]; then
    # A copy that was interrupted is never taken for whole.
    rm -rf "$PGDATA.new"
    pg_basebackup --pgdata "$PGDATA.new" --dbname "$leader" --wal-method stream \
        --checkpoint fast --no-password
    touch "$PGDATA.new/standby.signal"
    mv "$PGDATA.new" "$PGDATA"
fi

exec postgres -D "$PGDATA" -c "primary_conninfo=$leader" "$@"
