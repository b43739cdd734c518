import type { Tool } from '../tool.js';
import { COMMAND_TOOLS } from './commands.js';
import { FILE_TOOLS } from './files.js';
import { FORK_TOOLS } from './forks.js';
import { LOG_TOOLS } from './logs.js';
import { PREVIEW_TOOLS } from './previews.js';
import { SANDBOX_TOOLS } from './sandboxes.js';
import { SNAPSHOT_TOOLS } from './snapshots.js';
import { TEMPLATE_TOOLS } from './templates.js';
import { USAGE_TOOLS } from './usage.js';

/** In the order in which a model usually needs them. */
export const TOOLS: readonly Tool[] = [
  ...SANDBOX_TOOLS,
  ...COMMAND_TOOLS,
  ...FILE_TOOLS,
  ...PREVIEW_TOOLS,
  ...SNAPSHOT_TOOLS,
  ...FORK_TOOLS,
  ...TEMPLATE_TOOLS,
  ...LOG_TOOLS,
  ...USAGE_TOOLS,
];
