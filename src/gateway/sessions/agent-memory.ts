import { MemoryBudget } from '../../lib/memory-budget.ts';
import { availableMemory } from '../../lib/process/available-memory.ts';

const MIB = 1_048_576;
/** Share of the machine's or container's memory for data that agents and clients have yet to read. */
const SHARE = 1 / 8;
const [LEAST, MOST] = [64 * MIB, 512 * MIB];

/**
 * The memory for data on its way through agent sessions. One authtoken can have half of it, and one session a quarter.
 * Beyond a limit, the stream that holds the most ends.
 */
export class AgentMemory {
  readonly #whole: MemoryBudget;

  /** @param limit bytes for all sessions together; omitted: a share of the memory */
  constructor(limit = Math.min(MOST, Math.max(LEAST, availableMemory() * SHARE))) {
    this.#whole = new MemoryBudget(limit);
  }

  /** The budget of a further session of an authtoken. */
  ofSession(credentialId: string): MemoryBudget {
    return this.#whole.shareOf(credentialId).newShare();
  }
}
