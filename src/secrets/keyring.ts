import { createCipheriv, createDecipheriv, createHash, createHmac, randomBytes } from 'node:crypto';
import { ExplainedError } from '../lib/explained-error.js';

const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const CIPHER = 'aes-256-gcm';

interface Key {
  /** The beginning of its SHA-256. */
  id: string;
  secret: Buffer;
}

export interface Sealed {
  keyId: string;
  bytes: Buffer;
}

/** AES-256-GCM keys. The first one seals, each one opens. */
export class Keyring {
  private constructor(private readonly keys: readonly [Key, ...Key[]]) {}

  /** Base64 of 32 bytes for each key, separated by whitespace or commas. Throws ExplainedError without key material. */
  static parse(text: string, source: string): Keyring {
    const [first, ...rest] = text.split(/[\s,]+/).filter((word) => word !== '');
    if (first === undefined)
      throw new ExplainedError(
        `there is no key in ${source}: "openssl rand -base64 ${KEY_BYTES}" prints one`,
      );
    const toKey = (word: string, index: number): Key => {
      const secret = Buffer.from(word, 'base64');
      const normal = secret.toString('base64').replace(/=+$/, '') === word.replace(/=+$/, '');
      if (secret.length !== KEY_BYTES || !normal) {
        throw new ExplainedError(
          `key ${index + 1} in ${source} is not the base64 of ${KEY_BYTES} bytes; "openssl rand -base64 ${KEY_BYTES}" prints one`,
        );
      }
      return { id: createHash('sha256').update(secret).digest('hex').slice(0, 16), secret };
    };
    return new Keyring([toKey(first, 0), ...rest.map((word, index) => toKey(word, index + 1))]);
  }

  static makeKey(): string {
    return randomBytes(KEY_BYTES).toString('base64');
  }

  get currentId(): string {
    return this.keys[0].id;
  }

  /** HMAC-SHA-256 under each key, the current one first. `purpose` separates uses of the same text. */
  macs(purpose: string, text: string): readonly [Buffer, ...Buffer[]] {
    const mac = ({ secret }: Key) =>
      createHmac('sha256', createHmac('sha256', secret).update(purpose).digest()).update(text).digest();
    const [first, ...rest] = this.keys;
    return [mac(first), ...rest.map(mac)];
  }

  has(keyId: string): boolean {
    return this.keys.some(({ id }) => id === keyId);
  }

  seal(text: string, associatedData: string): Sealed {
    const [key] = this.keys;
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(CIPHER, key.secret, nonce);
    cipher.setAAD(Buffer.from(associatedData));
    const bytes = Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]);
    return { keyId: key.id, bytes };
  }

  /** Undefined when the key is missing, or the ciphertext or its associated data was changed. */
  open({ keyId, bytes }: Sealed, associatedData: string): string | undefined {
    const key = this.keys.find(({ id }) => id === keyId);
    if (!key || bytes.length < NONCE_BYTES + TAG_BYTES) return undefined;
    const decipher = createDecipheriv(CIPHER, key.secret, bytes.subarray(0, NONCE_BYTES), {
      authTagLength: TAG_BYTES,
    });
    decipher.setAAD(Buffer.from(associatedData));
    decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
    try {
      const text = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES));
      return Buffer.concat([text, decipher.final()]).toString('utf8');
    } catch {
      return undefined;
    }
  }
}
