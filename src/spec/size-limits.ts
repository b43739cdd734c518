const KIB = 1024;
const MIB = 1024 * KIB;

/** A list of a million bytes takes 3.6 MiB of JSON. */
export const CREATE_BODY_LIMIT = 4 * MIB;
/** All fields of a request to create but the patches, as JSON. */
export const MAX_SPEC_BYTES = 64 * KIB;
export const MAX_PATCH_BYTES = MIB;
/** PATH_MAX of Linux. */
export const MAX_PATH_BYTES = 4_096;
export const MAX_DOMAIN = 253;
/** The most entries of each list of a request. */
export const MOST = {
  env: 512,
  /** Each is searched in masked output. */
  secretEnv: 64,
  words: 1_024,
  scripts: 64,
  mounts: 64,
  patches: 256,
  rules: 256,
  ports: 64,
  protocols: 4,
  secrets: 64,
  hosts: 64,
  nameservers: 8,
  authorities: 8,
};
