/** The reasons that the sign-in page explains. */
export type RefusalCode =
  'cancelled' | 'expired' | 'invitation' | 'no_member' | 'not_allowed' | 'provider' | 'unverified_email';

/** A sign-in that is refused. The message is for the log of the operator: the page shows only the code. */
export class SignInRefused extends Error {
  constructor(
    readonly code: RefusalCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
