import { domainToASCII } from 'node:url';
import { z } from 'zod';
import { messageOf } from '../../lib/errors.ts';
import { PolicyInput } from '../../traffic-policy/document.ts';
import { TUNNEL_PROTOCOLS } from '../connectors/connector.ts';
import { displayUpstream, parseUpstream } from '../upstreams/upstream.ts';

/** `forwards_to` as it is sent; comes out as it is shown: `<host>:<port>`, a scheme only when given. */
const ForwardsTo = z
  .union([z.string(), z.number()], { error: 'a port, host:port, http(s)://host:port or unix:/path is needed' })
  .transform((input, context) => {
    try {
      return displayUpstream(parseUpstream(input));
    } catch (error) {
      context.addIssue({ code: 'custom', message: messageOf(error) });
      return z.NEVER;
    }
  });

const Domain = z.string({ error: 'a hostname is needed' }).transform((input, context) => {
  const [host = '', port, ...rest] = input.split(':');
  const hostname = canonicalHostname(host);
  const problem = rest.length > 0 ? 'it is not a hostname' : (hostnameProblem(hostname) ?? portProblem(port));
  if (problem === null) return port === undefined ? hostname : `${hostname}:${port}`;
  context.addIssue({ code: 'custom', message: problem });
  return z.NEVER;
});

/** Body of `POST /tunnels`; null means the same as leaving a member out. */
export const TunnelRequest = z
  .strictObject({
    protocol: z.enum(TUNNEL_PROTOCOLS, { error: `one of ${TUNNEL_PROTOCOLS.join(', ')} is needed` }),
    forwards_to: ForwardsTo,
    domain: Domain.nullish(),
    policy: PolicyInput.nullish(),
  })
  .refine(({ protocol, domain }) => protocol !== 'tcp' || !isText(domain) || domain.includes(':'), {
    path: ['domain'],
    error: 'a tcp tunnel needs host:port here, or no domain at all: the gateway then chooses both',
    when: isObject,
  })
  .refine(({ protocol, domain }) => protocol === 'tcp' || !isText(domain) || !domain.includes(':'), {
    path: ['domain'],
    error: 'a port is allowed for tcp tunnels only',
    when: isObject,
  })
  .refine(
    ({ protocol, forwards_to }) => protocol === 'http' || !isText(forwards_to) || !/^https?:/i.test(forwards_to),
    {
      path: ['forwards_to'],
      error: 'only http tunnels know http:// and https://: the others carry bytes as they are, so give host:port',
      when: isObject,
    },
  );
export type TunnelRequest = z.infer<typeof TunnelRequest>;

/** A tunnel as it is kept on disk. */
export interface Tunnel {
  readonly id: string;
  /** One of {@link TUNNEL_PROTOCOLS} in what this version writes; a later one may know more. */
  readonly protocol: string;
  readonly forwards_to: string;
  /** What is bound again after a restart: a hostname, for tcp `host:port`. */
  readonly domain: string;
  readonly url: string;
  /** As it was sent; null: the default policies apply, as they are at each start. */
  readonly policy: Readonly<Record<string, unknown>> | null;
  readonly created_at: string;
}

/**
 * Asks no more of a stored tunnel than it takes to list it, so that no tunnel is lost to a version that is stricter
 * than the one that wrote it, or older: what its members say is checked when it is opened, and then fails that one
 * tunnel alone. Members that are not known here stay.
 */
export const StoredTunnel: z.ZodType<Tunnel> = z.looseObject({
  id: z.string().min(1),
  protocol: z.string(),
  forwards_to: z.string(),
  domain: z.string(),
  url: z.string().refine((url) => URL.canParse(url), 'not a URL'),
  policy: z.record(z.string(), z.unknown()).nullable(),
  created_at: z.string(),
});

export const TUNNEL_STATES = ['online', 'connecting', 'offline', 'failed'] as const;
/**
 * `connecting`: not bound yet on this session; `offline`: no session after there was one;
 * `failed`: refused, and tried again.
 */
export type TunnelState = (typeof TUNNEL_STATES)[number];

export interface TunnelStatus {
  state: TunnelState;
  since: Date;
  /** Why the last attempt failed; null once the tunnel is online. */
  lastError: { code: string | null; message: string } | null;
}

/**
 * What has to be bound again so that the tunnel keeps its URL: the URL's host, for tcp with its port.
 */
export function domainOf(url: string, protocol: string): string {
  const { hostname, host } = new URL(url);
  return protocol === 'tcp' ? host : hostname;
}

/** Zod would keep the rules about two members back until all other problems are mended. */
function isObject({ value }: { value: unknown }): boolean {
  return typeof value === 'object' && value !== null;
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

/** Lower-case, without the trailing dot, in ASCII; empty when there is no such form. */
function canonicalHostname(host: string): string {
  const ascii = /^[\x21-\x7e]*$/.test(host) ? host.toLowerCase() : domainToASCII(host);
  return ascii.replace(/\.$/, '');
}

function hostnameProblem(host: string): string | null {
  if (host.startsWith('*')) return 'a wildcard is not allowed: a tunnel has one name';
  if (host.length > 253) return 'a hostname has at most 253 characters';
  const labels = host.split('.');
  if (!labels.every((label) => /^(?!-)[a-z0-9-]{1,63}(?<!-)$/.test(label))) {
    return 'a hostname is made of labels of 1 to 63 letters, digits and inner hyphens, joined by dots';
  }
  // No top-level domain is numeric: whatever ends in a number is an IP address to some parser.
  if (/^(?:\d+|0x[0-9a-f]*)$/.test(labels.at(-1) ?? '')) return 'an IP address is not allowed';
  return null;
}

function portProblem(port: string | undefined): string | null {
  const isPort = port === undefined || (/^[1-9]\d{0,4}$/.test(port) && Number(port) <= 65535);
  return isPort ? null : 'a port is a number from 1 to 65535';
}
