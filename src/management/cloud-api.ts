/** Where ngrok's cloud has its management API. */
export const CLOUD_API = 'https://api.ngrok.com';
