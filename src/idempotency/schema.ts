import { Type } from 'typebox';

export const WriteHeaders = Type.Object({
  'Idempotency-Key': Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 255,
      pattern: '^[ -~]+$',
      description:
        'A text of printable ASCII that names this request. The service carries out a request once for each key, for 24 hours. A repetition gets the first answer again, with the header `idempotency-replayed: true`. Another request with the same key is refused with `idempotency_conflict`. A refusal is not kept: the next request with the key is tried again.',
    }),
  ),
});
