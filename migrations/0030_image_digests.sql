-- The digest of the image that the disk of a sandbox was made from. Null: it never ran, or an earlier release started it.
-- The release before survives it: it leaves the digest of the last start of this release in place.

alter table sandboxes add column image_digest text;
