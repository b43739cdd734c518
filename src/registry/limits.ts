const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const MIB = 1_024 * 1_024;

export const MAX_REDIRECTS = 5;
/** The limit for name resolution, connection and headers of one request. */
export const HEADERS_TIMEOUT_MS = 30 * SECOND_MS;
export const IDLE_TIMEOUT_MS = 60 * SECOND_MS;
export const PULL_TIMEOUT_MS = 20 * MINUTE_MS;
/** For an image whose layers are not pulled. */
export const CONFIG_TIMEOUT_MS = MINUTE_MS;

/** A start waits for the answer with `pull_policy: always`. */
export const LATEST_TIMEOUT_MS = 10 * SECOND_MS;

export const MAX_TOKEN_BYTES = 64 * 1_024;
export const MAX_DOCUMENT_BYTES = MIB;
export const MAX_ENTRYPOINT_BYTES = 16 * 1_024;
export const MAX_LAYERS = 125;
export const MAX_FILES = 2_000_000;
export const MAX_VOLUMES = 64;

/** The part of the disk of the engine that the images of an organization may take. */
export const SHARE_OF_ORG = 1 / 4;

export const PULLS = { total: 16, each: 4 };
export const WAITING_PULLS = { total: 1_000, each: 64 };
/**
 * An organization without a pull gets a place of the one with the most after this wait. The pull that loses it begins
 * again.
 */
export const SHARE_AFTER_MS = 10 * SECOND_MS;
/**
 * While others wait, a pull is cut off when it takes longer for a part of this size. Each blob counts for some bytes
 * more.
 */
export const SLOW_PULL = { bytes: 4 * MIB, ms: MINUTE_MS, blobBytes: 256 * 1_024 };

/** How long a proof of access is valid without another request to the registry. */
export const PROOF_FRESH_MS = 24 * HOUR_MS;
/** How long it is valid while the registry gives no answer, and for `pull_policy: never`. */
export const PROOF_VALID_MS = 7 * 24 * HOUR_MS;
