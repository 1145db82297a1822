import type { Log } from '../../lib/log/log.ts';
import type { Clock } from '../../lib/time/clock.ts';
import type { Settings } from '../../settings/agent-settings.ts';

/** What nearly every part of an agent needs. A part takes it, or some of it, and then what is its own. */
export interface AgentContext {
  readonly settings: Settings;
  readonly clock: Clock;
  readonly log: Log;
  /** Adds what is done when the agent stops, before what was added earlier. */
  readonly onStop: (stop: () => unknown) => void;
}
