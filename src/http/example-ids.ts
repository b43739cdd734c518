/** Values that the examples of several slices share. */

export const ORG_ID = '01a206d4-e6c6-7503-99ae-e28acd8dd34c';
export const SANDBOX_ID = '01a206d4-e89f-7314-a6a9-a388b3e17bbd';
export const VOLUME_ID = '01a206d4-f47c-77d3-89e4-c3cb4d6b900e';

/** The actor of every example. */
export const BY_KEY = {
  kind: 'api_key',
  api_key_id: '01a206d4-e7db-71ab-8e51-8bb08f4eff9c',
  name: 'deploy',
};
