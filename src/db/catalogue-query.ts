const KINDS = `case c.relkind when 'r' then 'table' when 'p' then 'partitioned table' when 'v' then 'view'
  when 'm' then 'materialized view' when 'S' then 'sequence' when 'f' then 'foreign table' else c.relkind::text end`;

/** A member of an extension of the operator. Anything can be made a member of the one that every database has. */
const isOfExtension = (catalog: string, oid: string) =>
  `exists (select from pg_depend d join pg_extension e on e.oid = d.refobjid and e.extname <> 'plpgsql'
    where d.classid = '${catalog}'::regclass and d.objid = ${oid} and d.deptype = 'e')`;

/** In the schema of the service, or added to that of PostgreSQL, which comes first in every search. */
const isFound = (namespace: string, oid: string) =>
  `(${namespace} = 'public'::regnamespace or ${namespace} = 'pg_catalog'::regnamespace and ${oid} >= 16384)`;

/** The owner, who is another user in each installation, has one name. */
const roleName = (oid: string) =>
  `case ${oid} when (select oid from owner) then 'the owner' when 0 then 'public' else pg_get_userbyid(${oid})::text end`;

/** Reading by a role of the operator is allowed. */
const grants = (object: string, acl: string, from: string) => `
  select ${object} || ' to ' || ${roleName('g.grantee')},
    string_agg(g.privilege_type || case when g.is_grantable then ' with grant option' else '' end, ', ' order by g.privilege_type)
  from ${from} cross join lateral aclexplode(${acl}) g
  where g.grantee <> (select oid from owner) and g.privilege_type <> 'MAINTAIN'
    and not (g.privilege_type = 'SELECT' and g.grantee <> 0 and pg_get_userbyid(g.grantee) <> $1)
  group by 1, ${object}, g.grantee`;

/** The objects of the schema of the service, and all others that affect its statements. $1: the role of requests. */
export const EVERY_OBJECT = `
with owner as (
  select relowner as oid from pg_class where relname = 'orgs' and relnamespace = 'public'::regnamespace
),
relation as (
  select c.oid, c.relname, c.relkind, c.relispartition, c.relowner, c.relacl, c.relrowsecurity, c.relforcerowsecurity, c.relpersistence,
    c.relnamespace,
    case when c.relispartition
      then 'partition of ' || (select i.inhparent::regclass::text from pg_inherits i where i.inhrelid = c.oid)
      else ${KINDS} || ' ' || c.relname end as label
  from pg_class c
  where 'public'::regnamespace in (c.relnamespace, (select relnamespace from pg_class where c.relispartition and oid = pg_partition_root(c.oid)))
    and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')
    and not ${isOfExtension('pg_class', 'c.oid')}
),
object as (
  select label as object,
    concat_ws(', ', 'of ' || ${roleName('relowner')}, case when relrowsecurity then 'row-level security' end,
      case when relforcerowsecurity then 'forced' end, case when relpersistence <> 'p' then 'not logged' end,
      case when relkind in ('v', 'm') then pg_get_viewdef(oid) end, pg_get_partkeydef(oid)) as definition
  from relation where not relispartition
  union all
  select 'partition ' || relname,
    concat_ws(', ', 'of ' || ${roleName('relowner')}, case when relkind <> 'r' then relkind::text end,
      case when relforcerowsecurity then 'forced' end, case when relpersistence <> 'p' then 'not logged' end,
      case when relnamespace <> 'public'::regnamespace then 'in ' || relnamespace::regnamespace end)
  from relation
  where relispartition and (relowner <> (select oid from owner) or relkind <> 'r' or relforcerowsecurity or relpersistence <> 'p'
    or relnamespace <> 'public'::regnamespace)
  union all
  select 'child ' || i.inhrelid::regclass || ' of ' || r.label, 'inherits'
  from pg_inherits i join relation r on r.oid = i.inhparent join pg_class k on k.oid = i.inhrelid
  where not k.relispartition
  union all
  select 'column ' || a.attname || ' of ' || r.label,
    concat_ws(' ', format_type(a.atttypid, a.atttypmod),
      case when a.attcollation <> t.typcollation then 'collate ' || a.attcollation::regcollation end,
      case when a.attnotnull then 'not null' end,
      case when a.attgenerated <> '' then 'generated' when d.adbin is not null then 'default' end,
      pg_get_expr(d.adbin, d.adrelid))
  from relation r join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
  join pg_type t on t.oid = a.atttypid
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
  where r.relkind in ('r', 'p', 'f') and not r.relispartition
  union all
  select 'constraint ' || k.conname || ' of ' || r.label,
    pg_get_constraintdef(k.oid) || case when to_jsonb(k) ->> 'conenforced' = 'false' then ' not enforced' else '' end
  from relation r join pg_constraint k on k.conrelid = r.oid
  where k.contype <> 'n' and k.conparentid = 0 and not (r.relispartition and k.coninhcount > 0)
  union all
  select 'index ' || c.relname, pg_get_indexdef(i.indexrelid) || case when i.indisvalid and i.indisready then '' else ' invalid' end
  from relation r join pg_index i on i.indrelid = r.oid join pg_class c on c.oid = i.indexrelid
  where not c.relispartition and (i.indisunique or i.indexprs is not null
    or exists (select from unnest(i.indclass) as class where class >= 16384 and not ${isOfExtension('pg_opclass', 'class')}))
  union all
  select 'trigger ' || t.tgname || ' of ' || r.label,
    case when r.relispartition then replace(pg_get_triggerdef(t.oid), ' ON ' || r.oid::regclass || ' ', ' ON it ') else pg_get_triggerdef(t.oid) end
      || case t.tgenabled when 'O' then '' when 'D' then ' disabled' else ' enabled as ' || t.tgenabled::text end
  from relation r join pg_trigger t on t.tgrelid = r.oid
  where not t.tgisinternal and t.tgparentid = 0
  union all
  select 'trigger ' || t.tgname || ' of ' || r.relname, 'enabled as ' || t.tgenabled::text
  from relation r join pg_trigger t on t.tgrelid = r.oid
  where (t.tgisinternal or t.tgparentid <> 0) and t.tgenabled <> 'O'
  union all
  select 'trigger ' || o.tgname || ' of partition ' || r.relname, 'missing'
  from (
    select distinct s.inhparent, t.tgname from pg_inherits s join relation k on k.oid = s.inhrelid join pg_trigger t on t.tgrelid = k.oid
    where k.relispartition and not t.tgisinternal and t.tgparentid = 0
  ) o
  join pg_inherits i on i.inhparent = o.inhparent join relation r on r.oid = i.inhrelid
  where not exists (select from pg_trigger t where t.tgrelid = r.oid and t.tgname = o.tgname)
  union all
  select 'policy ' || p.polname || ' of ' || r.label,
    concat_ws(' ', case when p.polpermissive then 'permissive' else 'restrictive' end, 'for', p.polcmd, 'to',
      (select string_agg(${roleName('grantee')}, ', ' order by grantee) from unnest(p.polroles) as grantee),
      'using', pg_get_expr(p.polqual, p.polrelid), 'check', pg_get_expr(p.polwithcheck, p.polrelid))
  from relation r join pg_policy p on p.polrelid = r.oid
  union all
  select 'rule ' || w.rulename || ' of ' || r.label, pg_get_ruledef(w.oid)
  from relation r join pg_rewrite w on w.ev_class = r.oid
  where r.relkind not in ('v', 'm') or w.rulename <> '_RETURN'
  union all
  select 'function ' || p.oid::regprocedure,
    'of ' || ${roleName('p.proowner')} || ': ' || case when p.prokind = 'a' then 'aggregate' else pg_get_functiondef(p.oid) end
  from pg_proc p
  where ${isFound('p.pronamespace', 'p.oid')} and not ${isOfExtension('pg_proc', 'p.oid')}
  union all
  select 'type ' || t.oid::regtype, t.typtype::text || ' ' || coalesce(format_type(t.typbasetype, t.typtypmod), '')
  from pg_type t
  where t.typnamespace = 'public'::regnamespace and t.typtype <> 'c' and t.typelem = 0 and not ${isOfExtension('pg_type', 't.oid')}
  union all
  select 'operator ' || o.oid::regoperator, 'calls ' || o.oprcode::oid::regprocedure
  from pg_operator o
  where ${isFound('o.oprnamespace', 'o.oid')} and not ${isOfExtension('pg_operator', 'o.oid')}
  union all
  select 'cast from ' || castsource::regtype || ' to ' || casttarget::regtype, 'context ' || castcontext::text
  from pg_cast k where k.oid >= 16384 and not ${isOfExtension('pg_cast', 'k.oid')}
  union all
  select 'event trigger ' || evtname, evtevent || ' calls ' || evtfoid::regprocedure
  from pg_event_trigger e where evtenabled <> 'D' and not ${isOfExtension('pg_event_trigger', 'e.oid')}
  union all
  select 'setting ' || setting || ' of ' || case s.setrole when 0 then 'the database' else ${roleName('s.setrole')} end, 'changed'
  from pg_db_role_setting s cross join lateral (select split_part(unnest(s.setconfig), '=', 1) as setting) n
  where s.setdatabase in (0, (select oid from pg_database where datname = current_database()))
    and s.setrole in (0, (select oid from owner), coalesce((select oid from pg_roles where rolname = $1), 0))
    and setting in ('session_replication_role', 'row_security', 'role', 'default_transaction_read_only')
  union all
  select 'role ' || rolname, concat_ws(', ', case when rolsuper then 'superuser' end, case when rolbypassrls then 'bypasses row-level security' end)
  from pg_roles where rolname = $1 and (rolsuper or rolbypassrls)
  union all
  select 'membership of ' || $1, 'in ' || pg_get_userbyid(m.roleid)
  from pg_auth_members m join pg_roles u on u.oid = m.member where u.rolname = $1
  union all
  select 'setting session_replication_role of the session', current_setting('session_replication_role')
  where current_setting('session_replication_role') <> 'origin'
  union all ${grants("'grants of ' || r.label", 'r.relacl', 'relation r')}
  union all ${grants(
    "'grants of column ' || a.attname || ' of ' || r.label",
    'a.attacl',
    'relation r join pg_attribute a on a.attrelid = r.oid and not a.attisdropped',
  )}
  union all ${grants(
    "'grants of function ' || p.oid::regprocedure",
    "coalesce(p.proacl, acldefault('f', p.proowner))",
    `(select * from pg_proc p where pronamespace = 'public'::regnamespace and not ${isOfExtension('pg_proc', 'p.oid')}) p`,
  )}
  union all ${grants(
    "'default privileges of ' || case d.defaclobjtype when 'r' then 'tables' when 'f' then 'functions' when 'S' then 'sequences' else d.defaclobjtype::text end",
    'd.defaclacl',
    "(select * from pg_default_acl where defaclrole = (select oid from owner) and defaclnamespace in (0, 'public'::regnamespace)) d",
  )}
  union all
  select 'right to create in the schema public of ' || ${roleName('g.grantee')}, 'granted'
  from pg_namespace n cross join lateral aclexplode(n.nspacl) g
  where n.nspname = 'public' and g.privilege_type = 'CREATE' and (g.grantee = 0 or pg_get_userbyid(g.grantee) = $1)
)
select object, string_agg(definition, '; ' order by definition) as definition
from (select distinct object, regexp_replace(definition, '\\s+', ' ', 'g') as definition from object) each_once
group by object order by object`;
