import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto';
import { chmodSync, readFileSync, statSync } from 'node:fs';
import { hasErrno, OperatorError } from './errors.ts';
import { createDurablySync, explainUnreadable } from './files/durable-write.ts';

const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** First byte of every box, which allows for other ciphers later. */
const FORMAT = 1;
/** Enough to tell a gateway's keys apart. */
const ID_CHARACTERS = 10;

/** What was to be encrypted would be lost: the message says why. */
export class SealRefused extends OperatorError {}

/**
 * Encrypts secrets for the database with AES-256-GCM, so that copies of the file do not reveal them. While the key is being
 * changed, it knows two: one of them encrypts, both decrypt.
 */
export class SecretsBox {
  #keys: readonly Buffer[];
  #current: Buffer;
  #refusal: string | null = null;
  #follow = () => {};

  /** @param keys 32 random bytes, or several of these: the first one encrypts, until {@link choose} */
  constructor(keys: Buffer | readonly Buffer[]) {
    this.#keys = Buffer.isBuffer(keys) ? [keys] : keys;
    const [first] = this.#keys;
    const wrong = this.#keys.find((key) => key.length !== KEY_BYTES);
    if (first === undefined || wrong) {
      throw new OperatorError(`the encryption key must have ${KEY_BYTES} bytes, not ${wrong?.length ?? 0}`, 2);
    }
    this.#current = first;
  }

  /** @param follow is called before the box is used: it may {@link choose} another key */
  followWith(follow: () => void): void {
    this.#follow = follow;
  }

  /**
   * Has the key that a value was sealed with encrypt from now on; without such a key, {@link seal} throws.
   *
   * @param known the keys that there are now
   * @param refusal what it says then
   * @returns whether there is such a key
   */
  choose(sealed: Buffer, owner: string, refusal: string, known: readonly Buffer[] = this.#keys): boolean {
    const key = known.find((each) => unseal(each, sealed, owner) !== null);
    this.#keys = known;
    this.#current = key ?? this.#current;
    this.#refusal = key ? null : refusal;
    return key !== undefined;
  }

  /** From now on, {@link seal} throws. */
  refuseToSeal(reason: string): void {
    this.#refusal = reason;
  }

  /** Why nothing is encrypted; null: it is. */
  get refusal(): string | null {
    this.#follow();
    return this.#refusal;
  }

  /** Tell the keys apart, and reveal nothing about them: that of the key that encrypts, and those of all others. */
  get keyIds(): { current: string; others: string[] } {
    const [current = '', ...others] = this.#known.map(keyId);
    return { current, others };
  }

  /**
   * Encrypts a text, or bytes, and binds them to their owner: boxes of different owners cannot be swapped.
   *
   * @throws {SealRefused} when the key is not the one that it should be
   */
  seal(plain: string | Uint8Array, owner: string): Buffer {
    if (this.refusal !== null) throw new SealRefused(this.refusal);
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv('aes-256-gcm', this.#current, nonce).setAAD(Buffer.from(owner));
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
    const opened = this.#unseal(box, owner);
    if (opened !== null) return opened;
    throw new OperatorError(
      `cannot decrypt what is stored for ${owner}: restore the encryption key that it was stored with`,
    );
  }

  /** Whether {@link open} can decrypt a box. */
  opens(box: Buffer, owner: string): boolean {
    return this.#unseal(box, owner) !== null;
  }

  #unseal(box: Buffer, owner: string): Buffer | null {
    for (const key of this.#known) {
      const opened = unseal(key, box, owner);
      if (opened !== null) return opened;
    }
    return null;
  }

  /** A key for another purpose, which reveals nothing about the one of the box: 256 bits in base64url. */
  keyFor(purpose: string): string {
    this.#follow();
    return derive(this.#current, purpose);
  }

  /** {@link keyFor} of every key, that of the one that encrypts first. */
  keysFor(purpose: string): string[] {
    return this.#known.map((key) => derive(key, purpose));
  }

  /** The one that encrypts first. */
  get #known(): Buffer[] {
    this.#follow();
    return [this.#current, ...this.#keys.filter((key) => key !== this.#current)];
  }
}

function unseal(key: Buffer, box: Buffer, owner: string): Buffer | null {
  if (box[0] !== FORMAT) return null;
  const nonce = box.subarray(1, 1 + NONCE_BYTES);
  const tag = box.subarray(1 + NONCE_BYTES, 1 + NONCE_BYTES + TAG_BYTES);
  try {
    const decipher = createDecipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES });
    decipher.setAAD(Buffer.from(owner)).setAuthTag(tag);
    return Buffer.concat([decipher.update(box.subarray(1 + NONCE_BYTES + TAG_BYTES)), decipher.final()]);
  } catch {
    // Another key or owner, or it was changed.
    return null;
  }
}

function derive(key: Buffer, purpose: string): string {
  return createHmac('sha256', key).update(purpose).digest('base64url');
}

function keyId(key: Buffer): string {
  return derive(key, 'id').slice(0, ID_CHARACTERS);
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

/** Parses encryption keys in base64, separated by commas: two while the key is being changed. @throws {OperatorError} */
export function parseKeys(encoded: string, origin: string): Buffer[] {
  return encoded.split(',').map((each) => parseKey(each, origin));
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
