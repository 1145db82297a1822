import { systemClock } from '../../src/lib/time/clock.ts';
import { ProcessorTime } from '../../src/traffic-policy/state/processor-time.ts';

/** Processor time that counts what is charged to it. */
export class RecordedTime extends ProcessorTime {
  runs = 0;
  spentMs = 0;

  constructor() {
    super(1, systemClock);
  }

  /** What clients take is counted here, too. */
  override shareOf(): this {
    return this;
  }

  override run<T>(work: () => T): T {
    this.runs += 1;
    return super.run(work);
  }

  override spend(ms: number): void {
    this.spentMs += ms;
    super.spend(ms);
  }
}
