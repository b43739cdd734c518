/**
 * The versions of the official clients that the tests run: the newest of each registry when this line was changed. npm
 * has had none since 0.6.18. The workflow of every night sets SANDKEEP_TEST_CLIENTS_NEWEST, and runs the versions that
 * the registries have then.
 */
export const VERSIONS = { npm: '0.6.18', pypi: '0.7.11', crate: '0.7.13' } as const;

/** The inspector of the Model Context Protocol. Its command line works on Node 20, although the package asks for 22. */
export const INSPECTOR_VERSION = '2.12.0';
