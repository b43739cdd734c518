/** Why the provider led back without a session, by the code in the address. */
export const REFUSALS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    cancelled: 'The sign-in was cancelled at the provider. Sign in again.',
    expired: 'This browser has not begun the sign-in, or has taken more than ten minutes. Sign in again.',
    invitation:
      'The invitation is not for this account, or was used, revoked or has expired. Sign in with the invited address, or ask for another.',
    no_member: 'The account is no member of an organization. Ask an owner to add its address.',
    not_allowed: 'The operator has not allowed this account. Sign in with another one.',
    provider: 'The provider did not confirm the sign-in. Try again; the log of the service has the reason.',
    unverified_email:
      'The provider has not verified the address of the account. Verify it there, then sign in again.',
  }),
);
