-- The size of the disk in a snapshot of a virtual machine. A create with another size is refused at once, and the
-- manifest of the snapshot names the format of the disk.
-- The release before survives it: it ignores the column, and its snapshots are described as layers of images.

alter table snapshots
  -- In MiB. Null: the content is a layer of an image, or an earlier release has captured it.
  add column disk_mib integer check (disk_mib > 0);
