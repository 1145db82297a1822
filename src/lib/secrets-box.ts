import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { chmodSync, readFileSync, statSync } from 'node:fs';
import { createDurablySync, explainUnreadable } from './durable-write.ts';
import { hasErrno, OperatorError } from './errors.ts';

const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** First byte of every box, so that another cipher can follow one day. */
const FORMAT = 1;

/** Keeps secrets in a store that is read by more eyes than the process: disks, backups. AES-256-GCM. */
export class SecretsBox {
  readonly #key: Buffer;

  /** @param key 32 random bytes */
  constructor(key: Buffer) {
    if (key.length !== KEY_BYTES) {
      throw new OperatorError(`the encryption key must have ${KEY_BYTES} bytes, not ${key.length}`, 2);
    }
    this.#key = key;
  }

  /**
   * Encrypts a text.
   *
   * @param owner what the secret belongs to; it only opens with the same owner, so boxes cannot be swapped
   */
  seal(plain: string, owner: string): Buffer {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv('aes-256-gcm', this.#key, nonce).setAAD(Buffer.from(owner));
    const body = Buffer.concat([cipher.update(plain, 'utf8'), cipher.final()]);
    return Buffer.concat([Buffer.of(FORMAT), nonce, cipher.getAuthTag(), body]);
  }

  /**
   * Decrypts what {@link seal} made.
   *
   * @throws {OperatorError} when the key is another one, or the box was changed
   */
  open(box: Buffer, owner: string): string {
    const nonce = box.subarray(1, 1 + NONCE_BYTES);
    const tag = box.subarray(1 + NONCE_BYTES, 1 + NONCE_BYTES + TAG_BYTES);
    try {
      if (box[0] !== FORMAT) throw new Error('unknown format');
      const decipher = createDecipheriv('aes-256-gcm', this.#key, nonce, { authTagLength: TAG_BYTES });
      decipher.setAAD(Buffer.from(owner)).setAuthTag(tag);
      const body = decipher.update(box.subarray(1 + NONCE_BYTES + TAG_BYTES));
      return Buffer.concat([body, decipher.final()]).toString('utf8');
    } catch (cause) {
      throw new OperatorError(`cannot decrypt the private key of ${owner}: is the encryption key still the same?`, 1, {
        cause,
      });
    }
  }
}

/**
 * Reads the encryption key from its file.
 *
 * @returns null when there is none
 * @throws {OperatorError} when the file holds something else, or may not be read
 */
export function loadKey(file: string): Buffer | null {
  let encoded: string;
  try {
    // A file copied from a backup may have come with wider permissions than it had.
    if ((statSync(file).mode & 0o077) !== 0) chmodSync(file, 0o600);
    encoded = readFileSync(file, 'utf8');
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return null;
    throw explainUnreadable(file, error);
  }
  return parseKey(encoded, file, '; restore it from a backup');
}

/**
 * Makes an encryption key and the file that keeps it, of mode 0600. It is on the disk before anything is encrypted with
 * it: without the key all of that is lost.
 *
 * @param file its path; the folder must exist
 * @throws the system's error; `EEXIST` when there is a key
 */
export function createKey(file: string): Buffer {
  const key = randomBytes(KEY_BYTES);
  createDurablySync(file, `${key.toString('base64')}\n`, 0o600);
  return key;
}

/**
 * Reads an encryption key written as base64.
 *
 * @param origin where the text came from, for the error
 * @param remedy what to do about it, to end the error with
 * @throws {OperatorError} when it is not 32 bytes
 */
export function parseKey(encoded: string, origin: string, remedy = ''): Buffer {
  const key = Buffer.from(encoded.trim(), 'base64');
  if (key.length === KEY_BYTES) return key;
  throw new OperatorError(
    `${origin} does not hold an encryption key: ${KEY_BYTES} bytes in base64 are needed${remedy}`,
    2,
  );
}
