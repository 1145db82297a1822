import { createDecipheriv, createHmac } from 'node:crypto';
import type { TLSSocket } from 'node:tls';
import { isCheapToVerify } from './usual-keys.ts';

/** Who presents the certificates. */
export type Presenter = 'client' | 'server';

/** Certificates of a chain; real ones have two to five. */
const MAX_CERTIFICATES = 8;
/** Bytes of all of them; usual ones have 2 to 8 KiB. */
const MAX_BYTES = 16_384;
/** Bytes up to the certificates. Servers that ask for a client's may name many CAs before. */
const MAX_HANDSHAKE_BYTES = 65_536;

/** RFC 8446, sections 5.1 and 4. */
const RECORD_HEADER = 5;
const MAX_RECORD = 16_384 + 256;
const [CHANGE_CIPHER_SPEC, HANDSHAKE, APPLICATION_DATA] = [20, 22, 23];
const MESSAGE_HEADER = 4;
const [CERTIFICATE, FINISHED, COMPRESSED_CERTIFICATE] = [11, 20, 25];
const TAG_BYTES = 16;
const IV_BYTES = 12;

type Cipher = 'aes-128-gcm' | 'aes-256-gcm' | 'chacha20-poly1305';

/**
 * Reads the certificates of a TLS handshake before OpenSSL does, which verifies every one of a chain, trusted or not, with
 * whatever key. Up to TLS 1.2 they are not encrypted. For TLS 1.3, OpenSSL tells the secret of the handshake's records
 * (`keylog`), which are read here and passed on as they are.
 */
export class CertificateInspection {
  /** Bytes that have not been passed on. */
  #held: Buffer = Buffer.alloc(0);
  #passed = 0;
  /** Of handshake messages: what is not a whole one yet. */
  #pieces: Buffer[] = [];
  #pieceBytes = 0;
  #secret: Buffer | null = null;
  #cipher: Cipher | null = null;
  #records = 0n;
  #isDone = false;

  /**
   * @param secured a connection whose handshake has not begun
   * @param onSecret called when records can be read that could not before
   */
  constructor(
    private readonly secured: TLSSocket,
    presenter: Presenter,
    onSecret: () => void,
  ) {
    const label = `${presenter.toUpperCase()}_HANDSHAKE_TRAFFIC_SECRET `;
    secured.on('keylog', (line: Buffer) => {
      const text = line.toString('latin1');
      if (!text.startsWith(label)) return;
      this.#secret = Buffer.from(text.slice(text.lastIndexOf(' ') + 1).trim(), 'hex');
      onSecret();
    });
  }

  /** Whether all further bytes may be passed on as they come. */
  get isDone(): boolean {
    return this.#isDone && this.#held.length === 0;
  }

  add(chunk: Buffer): void {
    this.#held = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
  }

  /**
   * What may be passed on next. OpenSSL must have it before the next call, as it may tell a secret then.
   *
   * @returns null when more bytes or the secret are needed
   * @throws {Error} why the certificates are refused
   */
  next(): Buffer | null {
    const held = this.#held;
    if (this.#isDone) return held.length === 0 ? null : this.#taken(held.length);
    if (held.length < RECORD_HEADER) return null;
    const length = RECORD_HEADER + held.readUInt16BE(3);
    if (length > RECORD_HEADER + MAX_RECORD) throw new Error('malformed TLS record: it is too long');
    if (held.length < length) return null;
    if (held[0] === APPLICATION_DATA && this.#secret === null) return null;
    this.#passed += length;
    if (this.#passed > MAX_HANDSHAKE_BYTES) throw new Error('TLS handshake too long: its certificates do not come');
    this.#inspect(held.subarray(0, length));
    return this.#taken(length);
  }

  #taken(length: number): Buffer {
    const taken = this.#held.subarray(0, length);
    this.#held = this.#held.subarray(length);
    return taken;
  }

  #inspect(record: Buffer): void {
    const content = record.subarray(RECORD_HEADER);
    if (record[0] === HANDSHAKE) this.#read(content);
    else if (record[0] === APPLICATION_DATA) this.#readEncrypted(record);
    // In TLS 1.3 it says nothing; before, what follows is encrypted, and certificates are behind.
    else if (record[0] === CHANGE_CIPHER_SPEC) this.#isDone = this.secured.getProtocol() !== 'TLSv1.3';
  }

  #readEncrypted(record: Buffer): void {
    const content = this.#decrypted(record);
    let end = content.length;
    // Padding.
    while (end > 0 && content[end - 1] === 0) end -= 1;
    if (content[end - 1] === HANDSHAKE) this.#read(content.subarray(0, end - 1));
  }

  #read(content: Buffer): void {
    this.#pieces.push(content);
    this.#pieceBytes += content.length;
    for (;;) {
      if (this.#pieceBytes < MESSAGE_HEADER) return;
      if (this.#pieces.length > 1 && (this.#pieces[0]?.length ?? 0) < MESSAGE_HEADER) this.#join();
      const header = this.#pieces[0] ?? Buffer.alloc(MESSAGE_HEADER);
      const length = MESSAGE_HEADER + header.readUIntBE(1, 3);
      if (header[0] === CERTIFICATE && length > MAX_BYTES) {
        throw new Error(`certificates too long: more than ${MAX_BYTES} bytes; present a shorter chain`);
      }
      if (this.#pieceBytes < length) return;
      const all = this.#join();
      this.#readMessage(Number(all[0]), all.subarray(MESSAGE_HEADER, length));
      if (this.#isDone) return;
      this.#pieces = [all.subarray(length)];
      this.#pieceBytes -= length;
    }
  }

  #join(): Buffer {
    const all = Buffer.concat(this.#pieces);
    this.#pieces = [all];
    return all;
  }

  #readMessage(type: number, body: Buffer): void {
    if (type === COMPRESSED_CERTIFICATE) throw new Error('certificates refused: they are compressed');
    if (type === CERTIFICATE) checkCertificates(body, this.secured.getProtocol() === 'TLSv1.3');
    this.#isDone = type === CERTIFICATE || type === FINISHED;
  }

  /** @throws {Error} when it was not encrypted with the secret */
  #decrypted(record: Buffer): Buffer {
    const secret = this.#secret ?? Buffer.alloc(0);
    const fitting: Cipher[] = secret.length === 48 ? ['aes-256-gcm'] : ['aes-128-gcm', 'chacha20-poly1305'];
    const number = this.#records;
    this.#records += 1n;
    for (const cipher of this.#cipher === null ? fitting : [this.#cipher]) {
      const content = decrypted(record, number, secret, cipher);
      if (content === null) continue;
      this.#cipher = cipher;
      return content;
    }
    throw new Error('TLS handshake refused: a record cannot be decrypted');
  }
}

/** RFC 8446, section 4.4.2; without the context and the extensions RFC 5246, section 7.4.2. @throws {Error} why not */
function checkCertificates(body: Buffer, isTls13: boolean): void {
  let count = 0;
  let at = isTls13 ? 1 + (body[0] ?? 0) : 0;
  for (at += 3; at < body.length; ) {
    if (at + 3 > body.length) throw new Error('malformed certificates');
    const start = at + 3;
    const end = start + body.readUIntBE(at, 3);
    count += 1;
    if (count > MAX_CERTIFICATES) {
      throw new Error(`too many certificates: more than ${MAX_CERTIFICATES}; present a shorter chain`);
    }
    if (end > body.length || !isCheapToVerify(body.subarray(start, end))) {
      throw new Error(
        `certificate ${count} refused: signatures with its key take too long to check; use RSA with up to 8192 bits and ` +
          'an exponent up to 65537, ECDSA with P-256, P-384 or P-521, Ed25519 or Ed448',
      );
    }
    at = isTls13 && end + 2 <= body.length ? end + 2 + body.readUInt16BE(end) : end;
  }
}

/** RFC 8446, section 5.2. @returns null when the key is another one */
function decrypted(record: Buffer, number: bigint, secret: Buffer, cipher: Cipher): Buffer | null {
  const key = expanded(secret, 'key', cipher === 'aes-128-gcm' ? 16 : 32);
  const nonce = expanded(secret, 'iv', IV_BYTES);
  nonce.writeBigUInt64BE(nonce.readBigUInt64BE(IV_BYTES - 8) ^ number, IV_BYTES - 8);
  const end = record.length - TAG_BYTES;
  if (end < RECORD_HEADER) return null;
  const options = { authTagLength: TAG_BYTES };
  const decipher =
    cipher === 'chacha20-poly1305'
      ? createDecipheriv(cipher, key, nonce, options)
      : createDecipheriv(cipher, key, nonce, options);
  decipher.setAAD(record.subarray(0, RECORD_HEADER), { plaintextLength: end - RECORD_HEADER });
  decipher.setAuthTag(record.subarray(end));
  try {
    return Buffer.concat([decipher.update(record.subarray(RECORD_HEADER, end)), decipher.final()]);
  } catch {
    return null; // The tag does not match.
  }
}

/** HKDF-Expand-Label (RFC 8446, section 7.1) without context, for at most as many bytes as the secret has. */
function expanded(secret: Buffer, label: string, length: number): Buffer {
  const name = Buffer.from(`tls13 ${label}`);
  const info = Buffer.from([0, length, name.length, ...name, 0, 1]);
  const hash = secret.length === 48 ? 'sha384' : 'sha256';
  return createHmac(hash, secret).update(info).digest().subarray(0, length);
}
