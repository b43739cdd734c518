import { MOST_ACCESS_LABELS } from '../access/access.js';
import { narrowedScopes, ROLE_NAMES, type Role } from '../access/roles.js';
import { ApiError } from '../http/errors.js';
import { checkLabels } from '../lib/labels.js';

/** Throws ApiError when a role cannot be limited to these labels. */
export function checkLimits(role: Role, labels: Record<string, string>): void {
  const count = Object.keys(labels).length;
  if (count === 0) return;
  const bad = checkLabels(labels);
  if (bad) {
    const message = `the label "${bad.key}" of a member is refused: ${bad.message}`;
    throw new ApiError('invalid_request', message, { field: `labels.${bad.key}` });
  }
  if (count > MOST_ACCESS_LABELS) {
    const message = `a member can be limited to at most ${MOST_ACCESS_LABELS} labels`;
    throw new ApiError('invalid_request', message, { field: 'labels' });
  }
  if (narrowedScopes(role).length === 0) {
    const able = ROLE_NAMES.filter((name) => narrowedScopes(name).length > 0).join(', ');
    throw new ApiError(
      'invalid_request',
      `the role "${role}" cannot be limited to labels, which only sandboxes have: choose one of ${able}`,
      { field: 'labels' },
    );
  }
}
