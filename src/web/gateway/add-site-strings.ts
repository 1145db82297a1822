/** Texts of the view that adds a site. */
export const addSite = {
  title: 'Add a site',
  intro: 'A site is a place with devices. It gets a domain, whose names its devices serve, and a way for them to join.',
  domain: {
    title: 'Domain',
    label: 'Domain of the site',
    hint: 'Such as site-a.example.com. Devices get names below it: cam.site-a.example.com.',
    required: 'Enter a domain, such as site-a.example.com.',
    submit: 'Reserve domain',
    failed: 'The domain was not reserved',
    existing: 'Or continue with a domain that is reserved:',
    reserved: (domain: string) => `${domain} is reserved.`,
    other: 'Choose another domain',
  },
  dns: {
    title: 'DNS and certificate',
    later: 'DNS takes time. Go on meanwhile; this page stays at its address.',
  },
  devices: {
    title: 'Permission for devices',
    way: 'Devices run',
    ways: {
      invite: { label: 'This agent', hint: 'One code, with which each device joins and gets an authtoken of its own.' },
      authtoken: {
        label: 'Another client',
        hint: 'A bot user and an authtoken, to copy into the settings of one device.',
      },
    },
    bot: 'Name of the bot user',
    botHint: 'It owns the authtoken. Deactivating it blocks the whole site.',
    botRequired: 'Enter a name, such as that of the site.',
    submit: { invite: 'Create code', authtoken: 'Create authtoken' },
    failed: { invite: 'The code was not created', authtoken: 'The authtoken was not created' },
  },
  lines: {
    title: 'Set up the devices',
    invite: 'Run this on each device:',
    inviteQr: 'Or scan the code:',
    authtoken: 'Put these lines into the file .env of the device:',
    ca: "# NGROK_CA_CERT=gateway-ca.pem  (a copy of the gateway's ca.pem, if it has no public certificate)",
    once: 'Copy it now: it is shown only once.',
    qr: 'Lines for the device',
    waiting: 'The device appears here when it has joined:',
    another: 'Add another site',
  },
  step: (number: number, title: string) => `${number}. ${title}`,
} as const;
