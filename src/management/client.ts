import type { ManagementClientOptions } from './client-types.ts';
import { type Families, familyOf } from './family.ts';
import { operationFamilies } from './operations.ts';
import { showAs, Transport } from './transport.ts';

/**
 * A typed client of the management API of a gateway or of ngrok's cloud, with a member for each family of resources.
 *
 * Every method accepts a `signal` and rejects with a ManagementError. Reads are retried after network and server errors,
 * writes only when the API reported that it did not process them.
 *
 * @example
 * const client = new ManagementClient({ baseUrl: 'https://api.gateway.example.com', apiKey });
 * const bot = await client.botUsers.create({ name: 'site A' });
 * for await (const domain of client.reservedDomains.all()) console.log(domain.domain);
 */
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: the constructor sets all of them, from the table
export class ManagementClient {
  /** @throws {TypeError} when an option is invalid */
  constructor(options: ManagementClientOptions) {
    // Programs in JavaScript may pass none.
    const transport = new Transport(options ?? {});
    showAs(this, `ManagementClient ${transport.baseUrl}`);
    for (const family of operationFamilies()) Object.assign(this, { [family.name]: familyOf(transport, family) });
  }
}
export interface ManagementClient extends Families {}
