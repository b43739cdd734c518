import { Type } from 'typebox';

/** Headers of every operation that writes. */
export const WriteHeaders = Type.Object({
  'Idempotency-Key': Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 255,
      pattern: '^[ -~]+$',
      description:
        'A text of your making (printable ASCII) that names this request. The same request with the same key is carried out once in 24 hours: the answer of the first is repeated, with the header `idempotency-replayed: true`. Another request with the same key is refused with `idempotency_conflict`. A refusal is not kept: nothing was done, and the request is tried again.',
    }),
  ),
});
