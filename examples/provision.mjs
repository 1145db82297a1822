// Provisions a site and prints its authtoken:
//
//   MANAGEMENT_API_URL=https://api.ngrok.com MANAGEMENT_API_KEY=… \
//     node examples/provision.mjs '*.sitea.example.com' 'site A'
//
// Your own gateway also requires MANAGEMENT_API_CA_CERT=gateway-ca.pem. In this repository, run `npm run build` first.
import { readFileSync } from 'node:fs';
import { ManagementClient, provision, zoneFileLine } from 'device-agent/management';

const [domain, bot] = process.argv.slice(2);
const { MANAGEMENT_API_URL: baseUrl, MANAGEMENT_API_KEY: apiKey, MANAGEMENT_API_CA_CERT: caFile } = process.env;
if (!domain || !bot || !baseUrl || !apiKey) {
  process.stderr.write('usage: MANAGEMENT_API_URL=… MANAGEMENT_API_KEY=… node provision.mjs DOMAIN BOT\n');
  process.exit(2);
}

const client = new ManagementClient({ baseUrl, apiKey, ...(caFile && { ca: readFileSync(caFile, 'utf8') }) });
const site = await provision(client, { domain, bot, wait: false });

process.stdout.write(`${site.records.map(zoneFileLine).join('\n')}\n`);
process.stdout.write(`authtoken: ${site.authtoken.kind === 'created' ? site.authtoken.token : site.authtoken.kind}\n`);

// The client covers the whole API. This lists what each authtoken can bind:
for await (const credential of client.credentials.all()) {
  process.stdout.write(`${credential.id} ${credential.owner_id} ${credential.acl?.join(' ') || '(everything)'}\n`);
}
