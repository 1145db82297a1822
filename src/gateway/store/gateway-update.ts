import type { Database } from './sql/database.ts';

/** How the last update of a gateway's program failed. */
export interface GatewayUpdate {
  /** `kept`: it was given up, and stays, as going back would lose data. */
  readonly result: 'returned' | 'kept';
  readonly from: string;
  readonly to: string;
  readonly reason: string | null;
  /** RFC 3339. */
  readonly at: string;
}

const FACT = 'gateway_update';

/** Null: none has failed. */
export function gatewayUpdate(database: Pick<Database, 'fact'>): GatewayUpdate | null {
  return JSON.parse(database.fact(FACT) ?? 'null') as GatewayUpdate | null;
}

/** Only inside {@link Database.write}. */
export function noteGatewayUpdate(database: Pick<Database, 'setFact'>, update: GatewayUpdate): void {
  database.setFact(FACT, JSON.stringify(update));
}
