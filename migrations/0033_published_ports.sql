-- The ports of the host on which sandboxes publish theirs. A sandbox has them from its creation to its deletion.
-- The release before survives it: it publishes none. The trigger releases those of the sandboxes that it deletes.

create table published_ports (
  org_id uuid not null,
  sandbox_id uuid not null,
  protocol text not null check (protocol in ('tcp', 'udp')),
  host_bind inet not null,
  host_port int not null check (host_port between 1 and 65535),
  guest_port int not null check (guest_port between 1 and 65535),
  primary key (org_id, sandbox_id, protocol, host_bind, host_port),
  -- Every organization shares the ports of the host.
  constraint published_ports_host unique (protocol, host_port, host_bind),
  foreign key (org_id, sandbox_id) references sandboxes (org_id, id)
);
alter table published_ports enable row level security;
create policy own_organization on published_ports using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- The ports of an address that sandboxes of any organization have. It tells no more of them: the role of requests sees only the
-- rows of its own organization. Every role may execute it. An address that stands for all of its family has the ports of each.
create function taken_host_ports(of_protocol text, at_address inet) returns int[]
language sql stable security definer set search_path = pg_catalog
as $$
  select coalesce(array_agg(distinct host_port), '{}') from public.published_ports
  where protocol = of_protocol and family(host_bind) = family(at_address)
    and (host_bind = at_address or at_address in ('0.0.0.0', '::') or host_bind in ('0.0.0.0', '::'))
$$;

-- Null: unlimited. The default keeps one organization from taking all ports of the host.
alter table quotas add column max_published_ports int default 256 check (max_published_ports >= 0);

-- Every way in which a sandbox is deleted releases its ports, also in the release before.
create function release_published_ports() returns trigger language plpgsql as $$
begin
  delete from published_ports where org_id = new.org_id and sandbox_id = new.id;
  return null;
end
$$;
create trigger release_published_ports after update of removed_at on sandboxes
  for each row when (old.removed_at is null and new.removed_at is not null) execute function release_published_ports();
