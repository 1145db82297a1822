import { MemoryBudget } from '../lib/memory-budget.ts';
import { type Clock, systemClock } from '../lib/time/clock.ts';
import { fetchDocument } from './fetch-document.ts';
import type { PolicyRequest } from './policy-subjects.ts';
import { type OutboundRequest, type OutboundResponse, publicRequest } from './public-request.ts';
import type { AddressRecords } from './scope/connection-variables.ts';
import type {
  Attempt,
  GatewayPeople,
  IdentityProvider,
  SignedInPerson,
  SignInClient,
} from './sign-in/identity-provider.ts';
import type { Session } from './sign-in/sign-in-session.ts';
import { PolicyState } from './state/policy-state.ts';
import { ProcessorTime } from './state/processor-time.ts';
import {
  contentOf,
  type ReplacedText,
  replaceAll,
  type SearchedBody,
  type TextReplacement,
} from './text-replacements.ts';

export interface IpRule {
  readonly cidr: string;
  readonly action: 'allow' | 'deny';
}

export interface PolicyLogEntry {
  readonly endpointId: string;
  readonly clientIp: string;
  /** Phase and rule. */
  readonly place: string;
  readonly metadata: Readonly<Record<string, unknown>>;
}

export interface PolicyTrouble {
  /** Phase, rule and expression or action. */
  readonly place: string;
  readonly code: string;
  /** Names what is missing, but never quotes a value. */
  readonly message: string;
  /** How often it happened since the last report. */
  readonly times: number;
  /** The error; undefined for an expression without a value. */
  readonly cause: unknown;
}

/** Milliseconds of processor time for sealing a value, or opening one: others run meanwhile, so it is hardly measurable. */
export const SEALING_MS = 0.08;

/** Encrypts values for cookies, with keys that all gateways of a database have. */
export interface ValueSeal<T> {
  /** @param owner what the value is bound to: it is read for the same owner only */
  seal(value: T, owner: string): string;
  /**
   * @param onDecrypt called when it has to be decrypted, which takes {@link SEALING_MS}: not for a text of another form
   * @returns null for a text of another owner, one that was changed, and one whose key is too old
   */
  open(sealed: string, owner: string, onDecrypt?: () => void): T | null;
}

/** What has become of an attempt to sign in. */
export interface SignInEnd {
  readonly host: string;
  readonly issuer: string;
  readonly clientIp: string;
  /** The person at the provider; null: nobody has signed in. */
  readonly subject: string | null;
  /** Error code; null: somebody has signed in. */
  readonly error: string | null;
}

/** For openid-connect, oauth and gateway-sign-in. */
export interface SignInPort {
  /** Whose endpoints the policy is for. */
  readonly owner: string;
  /** Null: only the gateway knows them. */
  readonly people: GatewayPeople | null;
  readonly sessions: ValueSeal<Session>;
  readonly attempts: ValueSeal<Attempt>;
  /**
   * @param onAsk called when the provider has to be asked how it is used
   * @throws {SignInFailed} when the provider cannot be reached, or is no provider
   */
  provider(client: SignInClient, onAsk: () => void): Promise<IdentityProvider>;
  /** Sign-ins from before were ended: milliseconds since 1970. */
  endedBefore(host: string, issuer: string, subject: string, sessionId: string): number;
  onEnd(end: SignInEnd): void;
  /** Gives a session its id, and writes down that somebody has signed in. */
  begin(signIn: BegunSignIn): { readonly id: string; readonly written: Promise<void> };
  /** Ends a session whose browser has signed out. */
  signOut(sessionId: string): void;
}

/** A sign-in, as lists show it. */
export interface BegunSignIn {
  readonly issuer: string;
  readonly person: SignedInPerson;
  /** Where the person has signed in: an origin. */
  readonly publicUrl: string;
  /** The only host of the session; null when it shares a domain with others. */
  readonly host: string | null;
  readonly endpointId: string;
  readonly clientIp: string;
  readonly userAgent: string;
  /** Milliseconds since 1970. */
  readonly expiresAt: number;
}

/** A link with which browsers come in at one host. */
export interface UsedShareLink {
  /** `sl_…` */
  readonly id: string;
  /** Milliseconds since 1970. */
  readonly expiresAt: number;
}

/** For gateway-share-links: the links to endpoints of the policy's owner. */
export interface ShareLinksPort {
  /** Seals the id of the link that a browser has opened, for a host. */
  readonly cookies: ValueSeal<string>;
  /** The link with an id; null when it does not exist (any more), has expired, or belongs to another host. */
  find(id: string, host: string): UsedShareLink | null;
  /** The link that a token opens; also null when it is used up. */
  withToken(token: string, host: string): UsedShareLink | null;
  /**
   * Opens a link, which takes one of its uses; a browser that repeats this within a minute takes no other one.
   *
   * @param browser identifies the browser; empty: unknown
   * @param clientIp for the log
   * @returns null when it cannot be opened
   */
  open(token: string, host: string, browser: string, clientIp: string): Promise<UsedShareLink | null>;
  /** Counts an attempt to open a link; returns null, or the seconds to wait after too many. */
  countAttempt(clientIp: string): number | null;
}

/** What a status page says of which endpoints. */
export interface StatusPageContent {
  readonly title: string;
  /** Below the title; empty: nothing. */
  readonly text: string;
  readonly endpoints: readonly { readonly url: string; readonly title: string }[];
}

interface TaggedBody {
  /** The entity tag, in quotes. */
  readonly tag: string;
  readonly body: Buffer;
}

/** A status page as it is now. */
export interface StatusFile {
  /** Alternating names and values. */
  readonly headers: readonly string[];
  readonly plain: TaggedBody;
  /** By gzip. */
  readonly zipped: TaggedBody;
}

/** What is there of what policies rely on. */
export interface PolicyKnowledge {
  /** @param email in any case */
  hasPerson(email: string): boolean;
  /** Whether anybody is in a group of people. */
  hasMembers(group: string): boolean;
  /** Of addresses: their locations, and the networks (autonomous systems) that have them. */
  readonly databases: { readonly geo: boolean; readonly as: boolean };
}

export interface PolicyPorts {
  /** For rate-limit and circuit-breaker. */
  readonly clock: Clock;
  /** Milliseconds since 1970. */
  wallClock(): number;
  /** State that survives a recompilation of the policy: one object per endpoint URL. */
  readonly state: PolicyState;
  /** Of all policies of an authtoken together. */
  readonly processorTime: ProcessorTime;
  /** Of all encoders of compress-response of an authtoken together. */
  readonly compressionTime: ProcessorTime;
  readonly encoderMemory: MemoryBudget;
  /** Of what all policies of an authtoken make for requests and hold: variables, results, texts. */
  readonly valueMemory: MemoryBudget;
  /** The same object means an unchanged list; null, that one of the policies does not exist. */
  ipPolicies(ids: readonly string[]): readonly IpRule[] | null;
  hasCertificateAuthority(id: string): boolean;
  secret(vault: string, name: string): string | null;
  /** For warnings; null: nobody knows, as on a device. */
  readonly knowledge: PolicyKnowledge | null;
  /** Looks an IP address up in databases of locations and networks; null: there are none. */
  findAddress(address: string): AddressRecords | null;
  /**
   * Replaces all matches, one replacement after another.
   *
   * @param request whose client it is for
   * @throws Error when it takes too long, or the result is too long
   * @throws {ClientLeft}
   */
  replaceIn(
    searched: string | SearchedBody,
    replacements: readonly TextReplacement[],
    request: PolicyRequest,
  ): Promise<ReplacedText>;
  readonly signIn: SignInPort;
  readonly shareLinks: ShareLinksPort;
  /** Whether browsers keep cookies for the endpoint alone: they do not tell the ports of an address apart. */
  readonly hasOwnCookies: boolean;
  /**
   * For gateway-status-page.
   *
   * @returns gives the page as it is now: a promise only where nobody has asked for a while
   */
  readonly statusPage: ((content: StatusPageContent) => () => StatusFile | Promise<StatusFile>) | null;
  /**
   * @param time pays for what reading the response takes
   * @throws Error when the download fails or times out, or the document is longer than `maxBytes`
   */
  fetch(url: string, maxBytes: number, time: ProcessorTime): Promise<Buffer>;
  /**
   * Sends a request to the public internet, for http-request.
   *
   * @param time pays for what reading the response takes
   * @throws {ResponseTooLong}
   * @throws Error when the server is unreachable or not public, or the signal aborts
   */
  request(outbound: OutboundRequest, signal: AbortSignal, time: ProcessorTime): Promise<OutboundResponse>;
  onLog(entry: PolicyLogEntry): void;
  /** Receives what is valid in a policy but probably a mistake, with its places, when it is compiled. */
  onWarnings(warnings: readonly string[]): void;
  /** Receives failures, at most once a minute for each place. */
  onTrouble(trouble: PolicyTrouble): void;
}

const UNSEALED = { seal: () => '', open: () => null };
const NO_SIGN_IN: SignInPort = {
  owner: '',
  people: null,
  sessions: UNSEALED,
  attempts: UNSEALED,
  provider: () => Promise.reject(new Error('only a gateway can sign people in')),
  endedBefore: () => 0,
  begin: () => ({ id: '', written: Promise.resolve() }),
  signOut: () => {},
  onEnd: () => {},
};

const NO_SHARE_LINKS: ShareLinksPort = {
  cookies: UNSEALED,
  find: () => null,
  withToken: () => null,
  open: async () => null,
  countAttempt: () => null,
};

const EMPTY_FILE: StatusFile = {
  headers: [],
  plain: { tag: '""', body: Buffer.alloc(0) },
  zipped: { tag: '""', body: Buffer.alloc(0) },
};

/** Ports with the system's clock and the network, without a limit of processor time or memory, and without anything else. */
export function standalonePorts(): PolicyPorts {
  const endless = () => new ProcessorTime(1, { ...systemClock, now: () => 0 });
  return {
    clock: systemClock,
    wallClock: Date.now,
    state: new PolicyState(),
    processorTime: endless(),
    compressionTime: endless(),
    encoderMemory: new MemoryBudget(Number.POSITIVE_INFINITY),
    valueMemory: new MemoryBudget(Number.POSITIVE_INFINITY),
    ipPolicies: () => null,
    hasCertificateAuthority: () => false,
    secret: () => null,
    knowledge: null,
    findAddress: () => null,
    replaceIn: async (searched, replacements) => replaceAll(await contentOf(searched, endless()), replacements),
    signIn: NO_SIGN_IN,
    shareLinks: NO_SHARE_LINKS,
    hasOwnCookies: true,
    statusPage: () => () => EMPTY_FILE,
    fetch: (url, maxBytes) => fetchDocument(url, maxBytes),
    request: (outbound, signal) => publicRequest(outbound, signal),
    onLog: () => {},
    onWarnings: () => {},
    onTrouble: () => {},
  };
}
