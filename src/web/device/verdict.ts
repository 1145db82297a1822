import type { FeedSnapshot } from '../../agent/api/page/feed.ts';
import { device } from '../strings.ts';
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

const text = device.state;

/**
 * Sums up the agent's status.
 *
 * @param spanSince formats how long something lasts
 */
export function verdictOn(status: Status, live: LiveState, spanSince: (moment: string) => string): Verdict {
  const { session, tunnels, remote_api: own } = status;
  if (live === 'lost') {
    return { tone: 'bad', title: text.lost, detail: text.lostDetail, reason: null, needsRemedy: false };
  }
  const lasting = spanSince(session.since);
  const reason = session.last_error ? errorText(session.last_error) : null;
  if (session.state === 'stopped') {
    return { tone: 'warning', title: text.stopped, detail: text.stoppedDetail, reason: null, needsRemedy: false };
  }
  if (session.state === 'connecting') {
    if (reason === null) {
      const detail = text.connectingTo(session.gateway);
      return { tone: 'busy', title: text.connecting, detail, reason, needsRemedy: false };
    }
    return { tone: 'bad', title: text.offline, detail: text.unreachable(session.gateway), reason, needsRemedy: true };
  }
  if (session.state === 'offline') {
    const detail = text.offlineSince(session.gateway, lasting);
    return { tone: 'bad', title: text.offline, detail, reason, needsRemedy: true };
  }
  const detail = text.onlineSince(session.gateway, lasting);
  const down = tunnels.total - tunnels.online;
  if (tunnels.failed + tunnels.degraded > 0 || (down > 0 && tunnels.connecting === 0)) {
    const title = text.partial(down);
    return { tone: 'warning', title, detail, reason: null, needsRemedy: true };
  }
  if (own && own.status === 'failed') {
    const why = own.last_error ? errorText(own.last_error) : null;
    return { tone: 'warning', title: text.ownDomainDown, detail, reason: why, needsRemedy: true };
  }
  return { tone: 'good', title: text.online, detail, reason: null, needsRemedy: false };
}

/** An error with its code, for people. */
export function errorText({ code, message }: { code: string | null; message: string }): string {
  return code === null ? message : `${message} (${code})`;
}
