import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto';
import { chmodSync, readFileSync, statSync } from 'node:fs';
import { hasErrno, OperatorError } from './errors.ts';
import { createDurablySync, explainUnreadable } from './files/durable-write.ts';

const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** First byte of every box, which allows for other ciphers later. */
const FORMAT = 1;

/** Encrypts secrets for the database with AES-256-GCM, so that copies of the file do not reveal them. */
export class SecretsBox {
  readonly #key: Buffer;

  /** @param key 32 random bytes */
  constructor(key: Buffer) {
    if (key.length !== KEY_BYTES) {
      throw new OperatorError(`the encryption key must have ${KEY_BYTES} bytes, not ${key.length}`, 2);
    }
    this.#key = key;
  }

  /** Encrypts a text, or bytes, and binds them to their owner: boxes of different owners cannot be swapped. */
  seal(plain: string | Uint8Array, owner: string): Buffer {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv('aes-256-gcm', this.#key, nonce).setAAD(Buffer.from(owner));
    const body = Buffer.concat([cipher.update(Buffer.from(plain)), cipher.final()]);
    return Buffer.concat([Buffer.of(FORMAT), nonce, cipher.getAuthTag(), body]);
  }

  /**
   * Decrypts a box that {@link seal} returned.
   *
   * @throws {OperatorError} when the key or the owner does not match, or the box was changed
   */
  open(box: Buffer, owner: string): string {
    return this.openBytes(box, owner).toString('utf8');
  }

  /** {@link open} for bytes. @throws {OperatorError} */
  openBytes(box: Buffer, owner: string): Buffer {
    const nonce = box.subarray(1, 1 + NONCE_BYTES);
    const tag = box.subarray(1 + NONCE_BYTES, 1 + NONCE_BYTES + TAG_BYTES);
    try {
      if (box[0] !== FORMAT) throw new Error('unknown format');
      const decipher = createDecipheriv('aes-256-gcm', this.#key, nonce, { authTagLength: TAG_BYTES });
      decipher.setAAD(Buffer.from(owner)).setAuthTag(tag);
      const body = decipher.update(box.subarray(1 + NONCE_BYTES + TAG_BYTES));
      return Buffer.concat([body, decipher.final()]);
    } catch (cause) {
      throw new OperatorError(
        `cannot decrypt what is stored for ${owner}: restore the encryption key that it was stored with`,
        1,
        {
          cause,
        },
      );
    }
  }

  /** Whether {@link open} can decrypt a box. */
  opens(box: Buffer, owner: string): boolean {
    try {
      this.openBytes(box, owner);
      return true;
    } catch {
      return false;
    }
  }

  /** A key for another purpose, which reveals nothing about the one of the box: 256 bits in base64url. */
  keyFor(purpose: string): string {
    return createHmac('sha256', this.#key).update(purpose).digest('base64url');
  }
}

/**
 * Reads the encryption key from its file.
 *
 * @returns null when the file does not exist
 * @throws {OperatorError} when the file is invalid or unreadable
 */
export function loadKey(file: string): Buffer | null {
  let encoded: string;
  try {
    // A file restored from a backup may have wider permissions.
    if ((statSync(file).mode & 0o077) !== 0) chmodSync(file, 0o600);
    encoded = readFileSync(file, 'utf8');
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return null;
    throw explainUnreadable(file, error);
  }
  return parseKey(encoded, file, '; restore it from a backup');
}

/**
 * Creates an encryption key and its file with mode 0600. The key is flushed to the disk before its first use, as data
 * encrypted with a lost key is lost.
 *
 * @param file its path; the folder must exist
 * @throws the system's error; `EEXIST` when the file exists
 */
export function createKey(file: string): Buffer {
  const key = randomBytes(KEY_BYTES);
  createDurablySync(file, `${key.toString('base64')}\n`, 0o600);
  return key;
}

/**
 * Parses an encryption key in base64.
 *
 * @param origin source of the text, for the error
 * @param remedy advice at the end of the error
 * @throws {OperatorError} when it is not 32 bytes
 */
export function parseKey(encoded: string, origin: string, remedy = ''): Buffer {
  const key = Buffer.from(encoded.trim(), 'base64');
  if (key.length === KEY_BYTES) return key;
  throw new OperatorError(
    `${origin} does not contain an encryption key: ${KEY_BYTES} bytes in base64 are required${remedy}`,
    2,
  );
}
