/** Processes and threads of a sandbox. While thousands fork, they hold locks of the kernel that others wait for. */
export const PROCESSES = { default: 256, least: 32, most: 4_194_304 };
