import { z } from 'zod';
import type { TailLine } from '../../../lib/log/log-tail.ts';
import {
  ACCESS_REQUEST,
  type AccessChoice,
  type AccessWay,
  type AdmittedPeople,
} from '../../../traffic-policy/access.ts';
import type { PolicyInput } from '../../../traffic-policy/document.ts';
import { TUNNEL_PROTOCOLS } from '../../connectors/connector.ts';
import type { TunnelDetail } from '../agent-operations.ts';
import type { ApiRoute } from '../agent-routes.ts';
import type { StatusReport } from '../status-report.ts';

type Routes = Readonly<Record<string, ApiRoute>>;

/**
 * How the page gets at the API: without a token, by a session, by signing in first, or not at all, because the address has no
 * TLS and the browser would keep no cookie.
 */
export type PageAccess = 'open' | 'signed-in' | 'sign-in' | 'insecure';

const SignIn = z.union(
  [z.strictObject({ token: z.string().max(4_096) }), z.strictObject({ code: z.string().max(256) })],
  {
    error: 'must be {"token": "<API token>"} or {"code": "<one-time code>"}',
  },
);

/** Anyone may send it, before they have signed in. */
const MAX_SIGN_IN = 8 * 1024;

export const SESSION_ROUTES = {
  access: { method: 'get', path: '/page/session', answer: z.custom<{ access: PageAccess }>() },
  signIn: { method: 'post', path: '/page/session', body: SignIn, maxBody: MAX_SIGN_IN, answer: null },
  signOut: { method: 'delete', path: '/page/session', answer: null },
  signOutEverywhere: { method: 'delete', path: '/page/sessions', answer: null },
} as const satisfies Routes;

/** `GET /page/suggestions`: what may go into the form that starts a tunnel. */
export interface PageSuggestions {
  ports: number[];
  /** What a single label is completed with; null without a site. */
  ending: string | null;
  /** Whether all names there are this device's own. */
  hasOwnSite: boolean;
  /** Who may come in, as far as this version knows actions for it. */
  access: AccessChoice[];
}

/** A result of the diagnosis, as `device-agent doctor --json` prints it. */
export interface PageFinding {
  check: string;
  title: string;
  status: 'ok' | 'failed' | 'skipped';
  detail: string;
  advice: string | null;
}

/** A problem at its place in the text; lines and columns count from 1. */
export interface PolicyTextProblem {
  line: number;
  column: number;
  message: string;
}

export interface PolicyTextAnswer {
  /** Null while there are problems. */
  policy: PolicyInput | null;
  /** The policy in the format asked for; null without one, or while it cannot be read. */
  text: string | null;
  problems: PolicyTextProblem[];
  /** The password in the policy that was just made; null: none was. */
  password: string | null;
  /** Which people of the gateway it lets sign in; null: it asks for none, or cannot be read. */
  people: AdmittedPeople | null;
}

const PolicyTextRequest = z.strictObject({
  text: z.string().max(64 * 1024),
  protocol: z.enum(TUNNEL_PROTOCOLS),
  /** Writes the policy again in this format. */
  format: z.enum(['yaml', 'json']).optional(),
  /** Problems that the API or the gateway found, by place: they get a line. */
  details: z.record(z.string(), z.string()).optional(),
  /** Changes who may come in, before it is written in the format. */
  access: z.strictObject(ACCESS_REQUEST).optional(),
});

/** What only the page asks for. */
export const PAGE_ROUTES = {
  events: { method: 'get', path: '/page/events', answer: 'text/event-stream' },
  suggestions: { method: 'get', path: '/page/suggestions', answer: z.custom<PageSuggestions>() },
  doctor: { method: 'post', path: '/page/doctor', answer: z.custom<{ findings: PageFinding[] }>() },
  policy: {
    method: 'post',
    path: '/page/policy',
    body: PolicyTextRequest,
    answer: z.custom<PolicyTextAnswer>(),
  },
} as const satisfies Routes;

/**
 * A tunnel on the page; unlike its URL, its id never changes. Without its policy, which may contain secrets: events are
 * compressed together with text that others choose. And without the time of checks, which alone is no news.
 */
export interface FeedTunnel extends Omit<TunnelDetail, 'policy' | 'upstream'> {
  readonly upstream: Omit<TunnelDetail['upstream'], 'checked_at'>;
  readonly id: string;
  /** Who may come in by its policy. */
  readonly access: readonly AccessWay[];
  /** Whether it has a policy of its own rather than the default policies. */
  readonly own_policy: boolean;
}

/** The first event of the live feed, `snapshot`. */
export interface FeedSnapshot {
  /** What the device is called: its name at the site, else its hostname. */
  readonly name: string;
  readonly status: StatusReport;
  readonly tunnels: readonly FeedTunnel[];
  readonly log: readonly TailLine[];
}

/** A new tunnel, or of a known one what has changed; null for an option that was reset. */
export type FeedTunnelChange = Pick<FeedTunnel, 'id'> & Partial<FeedTunnel>;

/** Each following event, `change`: only what is new. */
export interface FeedChange {
  readonly status?: StatusReport;
  readonly tunnels?: readonly FeedTunnelChange[];
  /** Ids of deleted tunnels. */
  readonly removed?: readonly string[];
  readonly log?: readonly TailLine[];
}
