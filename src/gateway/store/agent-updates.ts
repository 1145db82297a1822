import type { Database } from './sql/database.ts';
import { nullable, type RowOf, tableOf, text } from './sql/table.ts';

const columns = {
  /** Of the authtoken. */
  id: text,
  /** When it began. */
  created_at: text,
  version: text,
  /** `confirmed`, or `returned`; null: nothing was heard yet. */
  result: nullable(text),
  /** Why it went back. */
  reason: nullable(text),
};

export type AgentUpdateRow = RowOf<typeof columns>;

/** The last update of each agent. Change it only inside {@link Database.write}. */
export class AgentUpdates extends tableOf('agent_updates', columns) {
  /** Replaces what is known of an agent's last update. */
  put(row: AgentUpdateRow): void {
    if (this.get(row.id) === null) this.insert(row);
    else this.update(row);
  }

  to(version: string): AgentUpdateRow[] {
    return this.where('version = ?', [version]);
  }

  /** Updates that went back. */
  returned(): AgentUpdateRow[] {
    return this.where("result = 'returned' ORDER BY created_at", []);
  }

  /** Versions of updates of which nothing was heard yet. */
  unsettled(): string[] {
    return this.database
      .allValues('SELECT DISTINCT version FROM agent_updates WHERE result IS NULL', [])
      .flat() as string[];
  }

  /** Forgets all updates to a version that nobody has confirmed. */
  forgetFailed(version: string): void {
    for (const { id, result } of this.to(version)) if (result !== 'confirmed') this.delete(id);
  }
}

/** A version that agents do not install without being asked. */
export interface StoppedVersion {
  readonly version: string;
  readonly reason: string;
  /** RFC 3339. */
  readonly at: string;
  /** Whether an operator has decided that it stays stopped. */
  readonly isDecided: boolean;
}

/** Fact with all of them. */
const FACT = 'stopped_updates';
/** The oldest ones are forgotten: nobody installs them any more. */
const MAX_STOPPED = 50;

export function stoppedVersions(database: Pick<Database, 'fact'>): StoppedVersion[] {
  return JSON.parse(database.fact(FACT) ?? '[]') as StoppedVersion[];
}

/** Stops a version, or has an operator decide that it stays so. Only inside {@link Database.write}. @returns whether anything changed */
export function stopVersion(database: Database, wanted: StoppedVersion): boolean {
  const all = stoppedVersions(database);
  const before = all.find(({ version }) => version === wanted.version);
  if (before !== undefined && before.isDecided >= wanted.isDecided) return false;
  const stopped = before === undefined ? wanted : { ...before, isDecided: true };
  database.setFact(FACT, JSON.stringify([...all.filter((each) => each !== before), stopped].slice(-MAX_STOPPED)));
  database.noteChange({ table: FACT, before: before ? asValues(before) : null, after: asValues(stopped) });
  return true;
}

/** Lets agents install a version again. Only inside {@link Database.write}. @returns false when it was not stopped */
export function resumeVersion(database: Database, version: string): boolean {
  const all = stoppedVersions(database);
  const stopped = all.find((each) => each.version === version);
  if (stopped === undefined) return false;
  database.setFact(FACT, JSON.stringify(all.filter((each) => each !== stopped)));
  database.noteChange({ table: FACT, before: asValues(stopped), after: null });
  return true;
}

const asValues = ({ version, ...rest }: StoppedVersion) => ({ id: version, ...rest });
