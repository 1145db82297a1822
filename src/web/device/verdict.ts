import type { FeedSnapshot } from '../../agent/api/page/page-routes.ts';
import type { LiveState } from '../ui/live-connection.ts';
import type { Tone } from '../ui/notice.tsx';

/** The device's state in one line. */
export interface Verdict {
  tone: Tone;
  title: string;
  detail: string;
  /** Why it is not online, in the agent's words. */
  reason: string | null;
  /** Whether a diagnosis can say what to do. */
  needsRemedy: boolean;
}

type Status = FeedSnapshot['status'];

/**
 * Sums up the agent's status.
 *
 * @param spanSince formats how long something lasts
 */
export function verdictOn(status: Status, live: LiveState, spanSince: (moment: string) => string): Verdict {
  const { session, tunnels, remote_api: own, storage, data_budget: budget } = status;
  if (live === 'lost') {
    return {
      tone: 'bad',
      title: 'No answer from the agent',
      detail:
        'The page reconnects automatically. Check that the device has power and network, and that the agent runs.',
      reason: null,
      needsRemedy: false,
    };
  }
  const lasting = spanSince(session.since);
  const reason = session.last_error ? errorText(session.last_error) : null;
  if (session.state === 'stopped') {
    return {
      tone: 'warning',
      title: 'Stopping',
      detail: 'The agent is stopping. The page reconnects when it is back.',
      reason: null,
      needsRemedy: false,
    };
  }
  if (budget?.next_at && session.state !== 'online') {
    const detail = `The data budget is used up. Online again at ${atUtc(budget.next_at)}.`;
    return { tone: 'warning', title: 'Offline by plan', detail, reason: null, needsRemedy: false };
  }
  if (session.state === 'connecting') {
    if (reason === null) {
      const detail = `Looking for ${session.gateway}.`;
      return { tone: 'busy', title: 'Connecting…', detail, reason, needsRemedy: false };
    }
    return {
      tone: 'bad',
      title: 'Offline',
      detail: `Cannot connect to ${session.gateway}. The agent keeps trying.`,
      reason,
      needsRemedy: true,
    };
  }
  if (session.state === 'offline') {
    const detail = `No session with ${session.gateway} for ${lasting}.`;
    return { tone: 'bad', title: 'Offline', detail, reason, needsRemedy: true };
  }
  const detail = `Connected to ${session.gateway} for ${lasting}.`;
  if (storage.last_error) {
    const title = 'Changes cannot be saved';
    const unsaved = `${detail} Tunnels stay as they are; this message stays until a change is saved.`;
    return { tone: 'warning', title, detail: unsaved, reason: errorText(storage.last_error), needsRemedy: false };
  }
  const down = tunnels.total - tunnels.online;
  if (tunnels.failed + tunnels.degraded > 0 || (down > 0 && tunnels.connecting === 0)) {
    const title = down === 1 ? '1 tunnel needs attention' : `${down} tunnels need attention`;
    return { tone: 'warning', title, detail, reason: null, needsRemedy: true };
  }
  if (budget?.level === 'paused') {
    const paused = `${detail} The data budget is used up to 95 %: tunnels answer 503 until ${atUtc(budget.until)}.`;
    return { tone: 'warning', title: 'Tunnels are paused', detail: paused, reason: null, needsRemedy: false };
  }
  if (own && own.status === 'failed') {
    const why = own.last_error ? errorText(own.last_error) : null;
    return { tone: 'warning', title: 'Online, but not at its own domain', detail, reason: why, needsRemedy: true };
  }
  return { tone: 'good', title: 'Online', detail, reason: null, needsRemedy: false };
}

/** A moment, as the command line shows it. */
function atUtc(moment: string): string {
  return `${moment.slice(0, 16).replace('T', ' ')} UTC`;
}

/** What has been used of a data budget. */
export function budgetText({ used_bytes, limit_bytes, until }: NonNullable<Status['data_budget']>): string {
  const percent = Math.floor((100 * used_bytes) / limit_bytes);
  return `${megabytes(used_bytes)} of ${limit_bytes / 1e6} MB (${percent} %) until ${atUtc(until)}`;
}

export const megabytes = (bytes: number): string => (bytes / 1e6).toFixed(1);

/** An error with its code, for people. */
export function errorText({ code, message }: { code: string | null; message: string }): string {
  return code === null ? message : `${message} (${code})`;
}
