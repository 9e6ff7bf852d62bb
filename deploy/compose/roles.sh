#!/bin/sh
# Runs once, on an empty database: the three roles, none of which may pass row-level security.
set -eu
psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" \
  -v owner="$MOTET_OWNER_PASSWORD" -v app="$MOTET_APP_PASSWORD" -v system="$MOTET_SYSTEM_PASSWORD" <<'SQL'
create role motet_owner login noinherit nocreatedb nocreaterole password :'owner';
create role motet_app login noinherit nocreatedb nocreaterole password :'app';
create role motet_system login noinherit nocreatedb nocreaterole password :'system';
create database motet owner motet_owner;
revoke all on database motet from public;
grant connect, temporary on database motet to motet_app, motet_system;
SQL
