import type { Log } from '../../lib/log/log.ts';
import type { HeldSocket } from '../../lib/network/listen.ts';
import type { RateLimit } from '../../lib/time/token-bucket.ts';
import type { ParsedSettings } from '../../settings/gateway-settings.ts';
import type { requestPublic } from '../../traffic-policy/fetch-document.ts';

type Needed = 'dataDir' | 'domain' | 'host' | 'httpPort' | 'httpsPort' | 'sessionPort';

/** How long the gateways of a shared database rely on one that says nothing. */
export interface Periods {
  /** How often a node says that it serves, in milliseconds. */
  renewMs: number;
  /** Without a word for so many milliseconds, a node's authtokens may take their names elsewhere. */
  silentMs: number;
  /** And for so many, others may: it has given them up by its own clock. */
  expiredMs: number;
  /** By how much a node gives its names up earlier: it may ask for its own state late. */
  marginMs: number;
}

/** When responses to failed authentications are delayed. */
export interface FailedAttemptSettings {
  /** Failures of one client within the window that are answered without delay. */
  free: number;
  windowMs: number;
  /** Delay of the first failure after those; it doubles with each further failure. */
  delayMs: number;
  maxDelayMs: number;
}

/** Limits of the management API. */
export interface ApiLimits {
  /** Null: no limit. */
  rateLimit: RateLimit | null;
  failedAttempts: FailedAttemptSettings;
  /** Of the body of a request. */
  body: { maxBytes: number; timeoutMs: number };
}

/** What is left out has the default that the settings document, or is off. */
export interface GatewayOptions
  extends Pick<ParsedSettings, Needed>,
    Partial<Omit<ParsedSettings, Needed | 'log' | 'limits'>> {
  /** Sockets that a service manager holds, for the ports above; omitted: none. */
  heldSockets?: readonly HeldSocket[];
  /** Omitted: as documented. */
  periods?: Periods;
  /** Called when this gateway cannot serve the shared database any more, see `ServingEvents`: it must end. */
  onRemoved?: (reason: string | null) => void;
  /** Whether the audit log has the policies that agents change; omitted: yes. */
  recordsPolicies?: boolean;
  /** The settings as lines of `.env`, for the backups; omitted: none. */
  settings?: string;
  /** Overrides of the management API's generous limits. */
  limits?: Partial<ApiLimits>;
  /** Fetches the key sets and certificates that traffic policies name; omitted: from the public internet. */
  fetchForPolicies?: (url: string, maxBytes: number) => Promise<Buffer>;
  /** Reaches the identity providers that traffic policies name; omitted: those on the public internet. */
  requestForSignIn?: typeof requestPublic;
  /** Called with what is wrong with a response of an upstream that was refused; omitted: agents are told that support it. */
  onRefusedAnswer?: ((forwardsTo: string, reason: string) => void) | undefined;
  /**
   * Called when an upstream has closed its connection in the middle of an upload that it had not answered; omitted: nobody looks.
   *
   * @returns resolves when the client may try again
   */
  onUploadLost?: (url: string) => Promise<void>;
  log: Log;
}
