import { redactEmail } from '../audit/events/redact-email.js';
import type { MemberRow } from './queries.js';

/** The member in the payload of an audit event, which shows no address. */
export function memberFacts({
  id,
  user_id,
  email,
  role,
  labels,
}: Pick<MemberRow, 'id' | 'user_id' | 'email' | 'role' | 'labels'>) {
  return { member_id: id, user_id, redacted_email: redactEmail(email), role, labels };
}
