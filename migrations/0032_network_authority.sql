-- The authority that signs certificates for the interception of TLS. Null: no sandbox has needed it yet.
-- The release before survives it: it intercepts nothing. It does not seal the key again: rotate with this release.

alter table instance
  add column authority_certificate text,
  add column authority_key_id text,
  add column authority_sealed bytea,
  add constraint instance_authority_check check (num_nulls(authority_certificate, authority_key_id, authority_sealed) in (0, 3));
