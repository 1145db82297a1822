import { createPublicKey, verify } from 'node:crypto';
import { z } from 'zod';
import { OperatorError } from '../lib/errors.ts';
import { VERSION_PATTERN } from './version-order.ts';

/** The longest file with a release's manifest that is read, in bytes. */
export const MAX_MANIFEST_BYTES: number = 256 * 1024;
/** The longest file of a release, in bytes. */
const MAX_FILE_BYTES = 512 * 1024 * 1024;
const MAX_KEYS = 8;

export const CHANNELS = ['stable', 'beta'] as const;
export type Channel = (typeof CHANNELS)[number];

/** How the program was installed; each kind has files of its own. */
export const KINDS = ['folder', 'npm', 'deb'] as const;
export type Kind = (typeof KINDS)[number];

/** Ed25519 public keys, 32 bytes in base64 each. A set with a higher number replaces all others. */
export const KeySet = z.object({
  number: z.int().nonnegative(),
  keys: z.array(z.string().regex(/^[A-Za-z0-9+/]{43}=$/)).max(MAX_KEYS),
});
export type KeySet = z.infer<typeof KeySet>;

export const ReleaseFile = z.object({
  kind: z.enum(KINDS),
  /** As `process.arch` has it; `any`: all. */
  architecture: z.enum(['any', 'arm', 'arm64', 'x64']),
  /** In the folder of the manifest. */
  name: z.string().regex(/^[A-Za-z0-9_][A-Za-z0-9._+~-]{0,150}$/),
  /** Bytes. */
  size: z.int().positive().max(MAX_FILE_BYTES),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
});
export type ReleaseFile = z.infer<typeof ReleaseFile>;

const Version = z.string().regex(VERSION_PATTERN);

/** What is signed. */
export const Release = z.object({
  version: Version,
  channel: z.enum(CHANNELS),
  /** Of two manifests of a version, the later one counts. */
  released: z.iso.datetime(),
  /** From then on, the manifest no longer proves what the newest version is. */
  expires: z.iso.datetime(),
  /** Versions before this one have a known vulnerability; null: none that is known. */
  security: Version.nullable(),
  files: z.array(ReleaseFile).min(1).max(50),
  /** The keys that are valid from now on. */
  keys: KeySet,
});
export type Release = z.infer<typeof Release>;

/** The file: the exact bytes that were signed, and the signatures. */
export const SignedRelease = z.object({
  payload: z.base64(),
  signatures: z.array(z.object({ key: z.string().max(50), signature: z.base64().max(100) })).max(MAX_KEYS),
});

/** What a signature covers begins with this, so that no other signed text can be taken for a release. */
export const SIGNED_AS = 'device-agent release 1\n';

/** The manifest is not what it has to be. Nothing of it was used. */
export class ReleaseRejected extends OperatorError {}

/**
 * Reads a signed manifest. Nothing of the payload is parsed before a trusted key has signed it.
 *
 * @param shown where it comes from, for messages
 * @throws {ReleaseRejected} when no trusted key has signed it, or it is not valid
 */
export function openRelease(text: string, trusted: KeySet, shown: string): Release {
  const signed = SignedRelease.safeParse(parsed(text));
  if (!signed.success) throw new ReleaseRejected(`release rejected: ${shown} is not a signed manifest; ${ASK}`);
  const payload = Buffer.from(signed.data.payload, 'base64');
  const covered = Buffer.concat([Buffer.from(SIGNED_AS), payload]);
  const isSigned = signed.data.signatures.some(
    ({ key, signature }) =>
      trusted.keys.includes(key) && verify(null, covered, publicKey(key), Buffer.from(signature, 'base64')),
  );
  if (!isSigned) {
    throw new ReleaseRejected(
      `release rejected: no key that this installation trusts has signed ${shown}; do not install it from elsewhere, and ask its publisher`,
    );
  }
  const release = Release.safeParse(parsed(payload.toString()));
  if (release.success) return release.data;
  const [problem] = release.error.issues;
  throw new ReleaseRejected(
    `release rejected: ${shown} is signed, but has another format (${problem?.path.join('.')}: ${problem?.message}); install the version once by hand`,
  );
}

const ASK = 'check the address, or ask its publisher';

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The header of a public key of Ed25519 in DER (RFC 8410). */
const DER_HEADER = Buffer.from('302a300506032b6570032100', 'hex');

function publicKey(base64: string) {
  return createPublicKey({
    key: Buffer.concat([DER_HEADER, Buffer.from(base64, 'base64')]),
    format: 'der',
    type: 'spki',
  });
}

/**
 * The file for an installation.
 *
 * @param packageName of several Debian packages; null: another kind
 * @throws {ReleaseRejected} when the release has none
 */
export function fileFor(
  release: Release,
  kind: Kind,
  architecture: string,
  packageName: string | null = null,
): ReleaseFile {
  const isOf = (file: ReleaseFile) => packageName === null || file.name.startsWith(`${packageName}_`);
  const of = (wanted: string) =>
    release.files.find((file) => file.kind === kind && file.architecture === wanted && isOf(file)) ?? null;
  const file = of(architecture) ?? of('any');
  if (file !== null) return file;
  const what = packageName === null ? kind : `${kind} ${packageName}`;
  throw new ReleaseRejected(
    `version ${release.version} has no file for this installation (${what}, ${architecture}); install it by hand`,
  );
}
