"""SkyRL Gym: environments in the trainer's own process, text in and text out."""
