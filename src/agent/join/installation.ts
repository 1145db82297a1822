import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { z } from 'zod';
import { hasErrno, OperatorError } from '../../lib/errors.ts';
import { createFolder, explainUnreadable, writeDurably } from '../../lib/files/durable-write.ts';
import { certificatesIn } from '../../lib/tls/pinned-chain.ts';
import { formatJoinCode, type JoinCode, parseJoinCode } from '../../management/join-code.ts';
import type { OwnCa } from '../../settings/learned-cas.ts';

const Installation = z.object({
  /** Proves to the gateway that this is the same device. */
  install_key: z.string(),
  /** See `machineId`; null: unknown. */
  machine: z.string().nullable(),
  /** Once joined, {@link withoutSecret}. */
  code: z.string(),
  /** What it is at its site; null before its settings are written. */
  device: z.object({ id: z.string(), name: z.string(), site: z.string(), domain: z.string() }).nullable(),
});

/** What a device remembers of joining, so that it never joins twice. */
export type Installation = z.infer<typeof Installation>;

/** Older versions write none. With a flipped bit, the device would join again as another one. */
const Checked = z.looseObject({ checksum: z.string().optional() });

/**
 * Reads the file of an installation.
 *
 * @returns null when there is none
 * @throws {OperatorError} when it is damaged or not readable
 */
export async function readInstallation(file: string): Promise<Installation | null> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    if (hasErrno(error, 'ENOENT')) return null;
    throw explainUnreadable(file, error);
  });
  if (text === null) return null;
  try {
    const content: unknown = JSON.parse(text);
    const { checksum } = Checked.parse(content);
    const installation = Installation.parse(content);
    if (checksum !== undefined && checksum !== checksumOf(installation)) throw new Error('wrong checksum');
    return installation;
  } catch (cause) {
    throw new OperatorError(
      `${file} is damaged: restore it, or delete it to join as another device; delete the old one on the gateway`,
      1,
      { cause },
    );
  }
}

/** Writes the file, readable only by its owner. */
export async function writeInstallation(file: string, installation: Installation): Promise<void> {
  await createFolder(dirname(file), 0o700);
  const content = { ...installation, checksum: checksumOf(installation) };
  await writeDurably(file, `${JSON.stringify(content, null, 2)}\n`, 0o600);
}

function checksumOf(installation: Installation): string {
  // Parsing orders the members.
  const text = JSON.stringify(Installation.parse(installation));
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}

/**
 * The installation that joins with a code. It stays the same device as before, except at another gateway, which must not
 * get the key for the first one, and on another machine, to which the card was copied.
 *
 * @param machine this machine; null: unknown
 * @param ownCa the CA of the former gateway as the agent has it now, which may have changed; null: the CA of its code
 */
export function installationFor(
  code: string,
  before: Installation | null,
  machine: string | null,
  ownCa: OwnCa | null = null,
): Installation {
  const isCopied = before !== null && machine !== null && before.machine !== null && before.machine !== machine;
  if (before !== null && !isCopied && isSameGateway(before.code, code, ownCa)) {
    return { ...before, code, machine: machine ?? before.machine };
  }
  return { install_key: randomBytes(32).toString('base64url'), machine, code, device: null };
}

/** The code for the same gateway with a digest in place of its secret, with which a stolen device could let others join. */
export function withoutSecret(code: string): string {
  const parsed = parseJoinCode(code);
  if (parsed === null) return code;
  return formatJoinCode({ ...parsed, secret: createHash('sha256').update(parsed.secret).digest('base64url') });
}

/** Whether this machine has joined with this code. One that still has its secret was interrupted, maybe on its way to another site. */
export function hasJoined(installation: Installation | null, code: string, machine: string | null): boolean {
  if (installation?.device == null) return false;
  const isUsed = installation.code === withoutSecret(code);
  return isUsed && installationFor(code, installation, machine).install_key === installation.install_key;
}

function isSameGateway(one: string, other: string, ownCa: OwnCa | null): boolean {
  const [a, b] = [parseJoinCode(one), parseJoinCode(other)];
  if (a === null || b === null || a.origin !== b.origin) return false;
  if (String(a.pin) === String(b.pin)) return true;
  const learned = ownCa === null ? [] : [ownCa.configured, ownCa.pem].map(digestsIn);
  // The CA of the code before has led to that of this one.
  return learned.length > 0 && isAmong(a, learned.flat()) && isAmong(b, learned.flat());
}

function isAmong({ pin, nextPin = null }: JoinCode, digests: readonly Buffer[]): boolean {
  return digests.some((each) => pin?.equals(each) || nextPin?.equals(each));
}

function digestsIn(pem: string | Uint8Array): Buffer[] {
  return certificatesIn(pem).map(({ raw }) => createHash('sha256').update(raw).digest());
}

/** Serial numbers that no copy of a disk or card carries to another machine. */
const SOURCES = ['/sys/firmware/devicetree/base/serial-number', '/sys/class/dmi/id/product_uuid'];

/**
 * A hash that tells this machine from others, also after its card was copied.
 *
 * @returns null when the machine has no serial number that this user can read
 */
export function machineId(sources: readonly string[] = SOURCES): string | null {
  for (const file of sources) {
    const serial = readSerial(file);
    if (serial !== null) return createHash('sha256').update(serial).digest('hex').slice(0, 32);
  }
  return null;
}

function readSerial(file: string): string | null {
  try {
    const serial = readFileSync(file, 'utf8').replaceAll('\0', '').trim();
    // Virtual machines and cheap boards have zeros.
    return /[1-9a-z]/i.test(serial) ? serial : null;
  } catch {
    // Not this kind of machine, or only root may read it.
    return null;
  }
}
